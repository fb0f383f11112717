"""Who is here and what each may do: rules as a pure state machine, reading and writing outside it.

realm.py       the rules: a state, the changes it admits, the state after; rules/ has one for each kind of change
changes.py     the changes, as values and as JSON
state.py       what is, at a version; topics.py is what is of one topic
vetting.py     what is checked once, before a change is stored: filters, certificates, lists, tokens
registry.py    the versioned, append-only table of changes on disk; any version can be read again
certificates.py  whose keys these are, and whether that counts; profile.py is what a certificate looks like
authority.py   the root and the authorities under it: issuing, renewing, revoking; applications.py asks for it
revocation.py  which certificates count no more: numbered signed lists, on stable storage; lists.py is their bytes
identity.py    an entity's own keys, in a file that only it reads
centers.py     a key center's secrets; topic_keys.py is what follows from a topic's key, broker.py who is handed it
issuing.py     keys and tokens for whoever gets a right; minting.py makes the tokens
layout.py      where things lie in a realm's directory
deployment.py  a realm as one handle: what an administrator does, in whole transactions (admin/)
"""
