"""Private keys at rest: sealed under an unlock key or a passphrase that is not in the realm."""
