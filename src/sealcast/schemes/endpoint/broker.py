"""The trusted half of `endpoint`: the only code that opens publishers' frames and makes keys for groups.

It holds the topic's secret for the life of a worker process and never writes it anywhere; expanded cipher contexts
are kept warm, bounded, and refuse to be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from sealcast.errors import Bug
from sealcast.groupkeys.interface import GroupKey, GrownKey, KeyRef, PairKey, TableKey
from sealcast.primitives.aead import DEFAULT_KEY_BITS, SealingKey
from sealcast.primitives.secrets import Secret
from sealcast.schemes.endpoint import keys, tables

#: Expanded contexts kept per worker and purpose, about 3 KB each.
MAX_WARM_KEYS: Final = 65_536


class EndpointSealer:
    """Keys for the groups of one topic and epoch, by reference, expanded once and kept warm."""

    def __init__(
        self,
        topic_id: bytes,
        epoch: int,
        topic_secret: Secret,
        pair_of_slot: Callable[[int], Secret],
        key_bits: int = DEFAULT_KEY_BITS,
    ) -> None:
        self.associated_data = aad = keys.associated_data(topic_id, epoch)
        self.key_bits = key_bits
        self._topic_secret = topic_secret
        self._pair_of_slot = pair_of_slot
        self._secret: Callable[[KeyRef], Secret] = lru_cache(MAX_WARM_KEYS)(self._derive)
        self._naming_key = keys.naming_key(topic_secret)
        #: Keys of derived tables by the column, and subscribers' parts of them.
        self.tables = tables.TableKeys(topic_secret)
        self._table_name = lru_cache(tables.MAX_WARM_TABLES)(lambda slots: tables.table_name(topic_secret, slots))
        #: The key that seals an event directly, for the one key that its group uses.
        self.body_key: Callable[[KeyRef], SealingKey] = lru_cache(MAX_WARM_KEYS)(
            lambda ref: keys.body_key(self._secret(ref), aad, key_bits)
        )
        #: The key that carries content keys to the holders of a key.
        self.wrap_key: Callable[[KeyRef], SealingKey] = lru_cache(MAX_WARM_KEYS)(
            lambda ref: keys.wrap_key(self._secret(ref), aad, key_bits)
        )
        #: Names a key on the wire.
        self.key_id: Callable[[KeyRef], bytes] = lru_cache(MAX_WARM_KEYS)(self._key_id)

    def content_keys(self, nonces: Sequence[bytes]) -> list[bytes]:
        return keys.content_keys(self._topic_secret, nonces)

    def hand_out(self, to: PairKey, ref: GroupKey | TableKey) -> bytes:
        """A group's secret, sealed for one of its members."""
        if to.slot not in ref.members:
            raise Bug(f"slot {to.slot} was to be handed a key of a group that it is no member of")
        pair = self._pair_of_slot(to.slot)
        carrier = keys.handout_key(pair, self.key_id(ref), self.associated_data, self.key_bits)
        return carrier.seal(keys.HANDOUT_NONCE, self._secret(ref).reveal())

    def secret(self, ref: KeyRef) -> bytes:
        """Raw, for masks."""
        return self._secret(ref).reveal()

    def _derive(self, ref: KeyRef) -> Secret:
        match ref:
            case PairKey(slot):
                return self._pair_of_slot(slot)
            case GroupKey(members):
                return keys.group_secret(self._topic_secret, members)
            case TableKey(slots, pattern):
                return Secret(self.tables.key(slots, pattern))
            case GrownKey(stem=stem):
                return keys.grown_secret(self._secret(stem), self.key_id(ref))

    def _key_id(self, ref: KeyRef) -> bytes:
        match ref:
            case PairKey(slot):
                return keys.pair_id(slot)
            case GroupKey(members):
                return keys.group_id(self._topic_secret, members)
            case TableKey(slots, pattern):
                return tables.key_id(self._table_name(slots), pattern)
            case GrownKey(shape, packed):
                return keys.grown_id(self._naming_key, shape, packed)
