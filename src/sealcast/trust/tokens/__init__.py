"""A key center's word on who may do what: minted, read in one way, taken or refused at the gate."""
