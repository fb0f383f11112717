"""Paper 004 (Pallickara and others) again: what its section 6 measures, on our trust plane and our path."""
