"""The attribute protection: no broker at all (paper 003). The scheme is in `scheme`."""
