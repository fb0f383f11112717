"""What witnesses of every protection share: doing a broker's ledger again, tracing events, and counting.

    report.py     what an audit found, and what it could not judge
    ledger.py     a ledger from its first record to its last: what holds whatever the protection
    frames.py     a ledger whose input is a log of frames: replay and rates decided again
    reading.py    a broker that reads attributes: admission and matching done again (expected.py, places.py, order.py)
    answer.py     why an event did or did not reach a subscriber; reasons.py and decided.py work it out for brokers
                  that read
    facts.py      how a topic stands at a broker, and what was refused there
    mailboxes.py  how much lies in all mailboxes of a broker
    sides.py      the witness side itself, without what differs

A protection's own part is in its room (`witness.py`). None of this needs Spark.
"""
