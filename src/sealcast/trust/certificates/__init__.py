"""Whose keys these are: certificates, the authority that issues them, and the lists that revoke them."""
