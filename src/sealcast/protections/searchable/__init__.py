"""The `searchable` protection (paper 002): brokers match ciphertexts and learn which subscriptions an event matches.

scheme    the scheme itself: labels sealed by subscribers, trapdoors made by publishers, and what a broker computes
sealed    the bytes of sealed filters and of blocks of trapdoors
search    a broker's index of sealed filters
leaks     what tags reveal, measured by an attack
"""
