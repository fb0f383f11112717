"""Requests over control topics: envelopes, services, discovery, key centers, brokers' desks, and those who ask."""
