"""Clients of `layered` topics: what publishers encrypt, what subscribers want, and what they open."""
