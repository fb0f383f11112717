"""Filters: text -> tree -> checked against a schema -> evaluated, indexed, explained. The language is in README.md."""
