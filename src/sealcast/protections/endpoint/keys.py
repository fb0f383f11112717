"""Every key of the `endpoint` protection and where it comes from. Nothing is stored but the broker's one topic secret.

    topic secret (per topic and epoch, the broker's)
      ├── content key of a position       seals one event for a group that uses several keys
      ├── group secret of a set of slots  K_G = PRF(master, epoch, G) (decision 4), held by exactly these members
      └── root label of a tile's table    a leaf for each pattern of the tile (tables.py), held by exactly its members
            └── grown secret              out of the secret of its stem, whose members are all among its own
    pair secret (per topic, epoch and entity; the broker's and that entity's)
      ├── frame key of a boot             seals a publisher's frames (trust/keys/frames.py)
      ├── handout key of a key id         carries the one secret of that id to one subscriber
      └── table key of a table's name     carries one subscriber's part of that table to it
    any of them: of a pair, a group, a table's pattern, or grown
      ├── body key                        seals an event that this key alone serves
      ├── wrap key; of tables, masks      carries content keys to whoever holds the secret
      └── mask at a grown key's id        carries that grown key to whoever holds the secret

Why so many: a nonce is a position, so under one key a position may only ever meet one plaintext, also when a batch
is run again and the plan comes out differently, as it does: what a planner remembers is lost with its process. Hence
every ciphertext is a function of the key it is under and of what it carries. Body and wrap keys are different keys, and
a content key is its position's; a handout or table key encrypts a single secret in its life, the one that its
derivation names; the place of a mask is a position, or the name of the very key that it hides. All derivations name
topic and epoch through the secret they start from. A topic's `key_bits` are the size of every AES key here; secrets
have 32 bytes all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sealcast.primitives import kdf, labels
from sealcast.primitives.aead import DEFAULT_KEY_BITS, SealingKey
from sealcast.primitives.secrets import Secret

#: A handout key seals one secret in its life, so that its nonce may be fixed.
HANDOUT_NONCE: Final = bytes(12)


def body_key(secret: Secret, aad: bytes, key_bits: int = DEFAULT_KEY_BITS) -> SealingKey:
    return SealingKey(kdf.derive(secret, b"body"), aad, key_bits)


def wrap_key(secret: Secret, aad: bytes, key_bits: int = DEFAULT_KEY_BITS) -> SealingKey:
    return SealingKey(kdf.derive(secret, b"wrap"), aad, key_bits)


def handout_key(pair: Secret, key_id: bytes, aad: bytes, key_bits: int = DEFAULT_KEY_BITS) -> SealingKey:
    return SealingKey(kdf.derive(pair, b"handout", key_id), aad, key_bits)


def table_key(pair: Secret, name: bytes, aad: bytes, key_bits: int = DEFAULT_KEY_BITS) -> SealingKey:
    return SealingKey(kdf.derive(pair, b"table part", name), aad, key_bits)


def content_keys(topic_secret: Secret, nonces: Sequence[bytes]) -> list[bytes]:
    """One key an event, for this position and no other."""
    return kdf.derive_many(kdf.derive(topic_secret, b"content"), nonces)


def group_secret(topic_secret: Secret, members: Sequence[int]) -> Secret:
    return kdf.derive(topic_secret, b"group", encode_slots(members))


def group_id(topic_secret: Secret, members: Sequence[int]) -> bytes:
    """Names a group's key in 16 bytes that tell an onlooker nothing of who is in the group."""
    return kdf.derive(topic_secret, b"group id", encode_slots(members), length=16).reveal()


def grown_secret(stem: Secret, key_id: bytes) -> Secret:
    """What whoever holds the stem derives, and the other members are handed."""
    return Secret(labels.grow(stem.reveal(), key_id))


def grown_id(naming: bytes, shape: bytes, packed: bytes) -> bytes:
    """In 16 bytes that tell nothing: who (a bit a slot), and out of which stems. `naming` is the topic's key for it."""
    return labels.grow(naming, shape + packed)[:16]


def grown_ids(naming: bytes, shapes: Sequence[bytes], packed: Sequence[bytes]) -> list[bytes]:
    """`grown_id` for many."""
    return [label[:16] for label in labels.grow_many(naming, map(bytes.__add__, shapes, packed))]


def naming_key(topic_secret: Secret) -> bytes:
    return kdf.derive(topic_secret, b"grown id").reveal()


def pair_id(slot: int) -> bytes:
    return b"pair" + slot.to_bytes(12, "big")


def encode_slots(members: Sequence[int]) -> bytes:
    return b"".join(slot.to_bytes(4, "big") for slot in members)
