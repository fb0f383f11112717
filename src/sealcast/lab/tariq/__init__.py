"""Paper 003's figures again: simulated peers that run the real nodes, with the costs of the real cryptography."""
