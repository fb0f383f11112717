"""Peers without brokers: the forest of attribute trees that carries events of attribute topics (paper 003, section 6).

`port.py` is the page between protocol, cryptography and transport; `node.py` is one peer's state machine. Neither reads
a clock, a file or a socket.
"""
