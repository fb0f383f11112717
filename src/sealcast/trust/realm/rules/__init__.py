"""A rule for each kind of change: all checks first, then the write. `realm.Fold` applies them."""
