"""Who is here and what each may do: rules as a pure state machine, reading and writing outside it.

realm.py       the rules: a state, the changes it admits, the state after
changes.py     the changes, as values and as JSON
vetting.py     what is checked once, before a change is stored: filters, public keys
registry.py    the versioned, append-only table of changes on disk; any version can be read again
certificates.py  whose keys these are, and whether that counts; profile.py is what a certificate looks like
authority.py   the root and the authorities under it: issuing, renewing, revoking; applications.py asks for it
revocation.py  which certificates count no more: numbered signed lists, on stable storage; lists.py is their bytes
identity.py    an entity's own keys, in a file that only it reads
broker.py      the trusted broker's secrets, and the pair keys that follow from them
layout.py      where things lie in a realm's directory
deployment.py  a realm as one handle: what an administrator does, in whole transactions
"""
