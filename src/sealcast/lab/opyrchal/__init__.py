"""Paper 000 (Opyrchal and Prakash) again: its table and figures, printed, computed and simulated."""
