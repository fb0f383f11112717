"""Brokers of `layered` topics: how filters travel upwards, and the routing tables that come of it.

posts from below ──keeper: verify──> table log ──fold──> {tree: RoutingNode}        version = records of the log
                          └──what must go up──> this broker's own post to its parent
"""
