"""Topic creation and discovery (paper 004, section 2.1): advertisements, who may find them, and who keeps them.

owner  -- signed advertisement -->  every node        restrictions.py, advertisements.py
entity -- query, under its own certificate -->  any   queries.py, node.py, store.py
entity <-- what it may find, signed by the owners     client.py
"""
