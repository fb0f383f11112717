"""The layered protection on Spark: brokers that route what they cannot read.

    frames --admit--> a root's pieces --hop--> its hops/ --hop--> those of the brokers below --> subscribers' mailboxes

Admission is the machinery of all topics up to the frame's Merkle root (`admit.py`). From there one query moves events
from ledger to ledger, one hop a batch, for all brokers that run here. What a hop depends on is pinned: which records
of the ledger above it takes, and which version of the broker's table it routes by.
"""
