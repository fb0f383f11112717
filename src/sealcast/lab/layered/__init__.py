"""The layered protection as a batch: a tree of brokers with keys of their own, a hop a Spark stage. See run.py."""
