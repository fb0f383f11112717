"""Several brokers: frames go from the one that took them in to all that have subscribers, and subscribers move.

Broker-side code: README.md says what each file is for and who may import it.
"""
