"""Several brokers: frames go from the one that took them in to all that have subscribers, and subscribers move."""
