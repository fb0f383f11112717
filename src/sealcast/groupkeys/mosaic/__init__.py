"""Mosaic: our own group key algorithm. Tiles of derived keys, and keys that grow over a tree of tiles."""
