"""How a client reaches a realm that is on other machines: HTTPS to a gateway, and what it keeps until it gets through.

    https       one connection pool: TLS 1.3, deadlines, backoff with jitter, retries of what may be repeated
    problems    what a gateway's refusals mean
    journals    ledgers, reseals and pieces, read from there
    frames      a publisher's lane that ends there, and the queue on disk for when it cannot be reached
    control     control topics, posts
    listening   the socket of whoever is reached: gateways, peers

Nothing here believes a gateway: whoever reads verifies what the realm's authors, brokers and publishers signed.
"""
