"""Backups of a realm: one consistent moment of it, sealed in one file, and verified before it is a realm again."""
