"""The only door to cryptographic libraries: sealing, key derivation, MACs, signatures, Merkle trees, HPKE, secrets.

secrets   Secret: bytes that refuse to be pickled, printed, copied or compared carelessly
kdf       derive, derive_many: keys from keys, by context
aead      SealingKey, nonce(s): AES-256-GCM that commits to its key; nonces are positions
mac       tag, verify
sign      SigningKey, VerifyKey: Ed25519
p256      SigningKey, VerifyKey: ECDSA over P-256
x509      certificates, made and taken apart; x509_lists has CRLs
merkle    one signature for a batch of events, each verifiable alone
hpke      seal something to one entity; hybrid: also against whoever breaks X25519 one day
groups    Group, Element, Exponent: commutative encryption; curve and modular are two groups, sswu hashes onto the curve
points    addition on the curve; halves: a master key of ciphertext matching that nobody but its maker has whole
"""
