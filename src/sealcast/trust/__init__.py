"""Who is here and what each may do: rules as a pure state machine, with reading and writing outside of it.

    deployment.py   Realm, the administrator's handle
    admin/          the administrator's acts
    handles.py      what brokers, entities and everybody else can reach of a realm
    registry.py     the append-only table of changes
    vetting.py      what is checked once, before a change is stored
    keys/           private keys, and what is derived from them
    tokens/         who may do what, in a key center's words
    realm/          changes, rules, state
    certificates/   whose keys these are, and whether that counts
    layout.py       where files lie
    vault/          private keys at rest
    storage/        the registry's table, in a file or on a server

Imports go downwards in this order. README.md says who may import what.
"""
