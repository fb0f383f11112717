"""Brokers of `layered` topics: how filters travel upwards, and the routing tables that come of it.

posts from below ──desk: verify──> table log ──fold──> {tree: Broker}        version = records of the log
                          └──what must go up──> this broker's own post to its parent
"""
