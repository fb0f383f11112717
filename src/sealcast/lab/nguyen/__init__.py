"""Paper 002's tables again: pre-filters alone, and in front of encrypted matching."""
