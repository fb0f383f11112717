"""What a realm is and what may happen in it: a pure state machine over changes. Reads no clock, file or key."""
