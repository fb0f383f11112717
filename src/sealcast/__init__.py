"""Sealcast."""
