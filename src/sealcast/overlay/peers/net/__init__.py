"""Links between peers: TLS 1.3 over TCP, both ends proven by the realm's own certificates.

    frames      what stands on a link: length, kind, body; each bounded
    limits      how much of everything a peer grants to others, and for how long it waits
    tls         the certificate and key of an entity as OpenSSL takes them, and who counts at the other end
    queue       what waits for one peer: bounded, and honest about what it dropped
    link        one connection, from its first frame to its last
    doors       the socket that a process listens on, for all identities that it hosts
    transport   one identity's links: dials, answers, sends, cuts off

A message is bytes here. Trees, events and keys are the business of those who use a `Transport`. Nothing but a verified
certificate tells who is at the other end of a link.
"""
