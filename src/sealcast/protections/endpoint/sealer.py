"""The trusted half of `endpoint`: the only code that opens publishers' frames and makes keys for groups.

It holds the topic's secret for the life of a worker process and never writes it anywhere; expanded cipher contexts
are kept warm, bounded, and refuse to be pickled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Generic, TypeVar

from sealcast.errors import Bug
from sealcast.groupkeys.interface import GroupKey, GrownKey, KeyRef, PairKey, TableKey
from sealcast.primitives.aead import DEFAULT_KEY_BITS, SealingKey
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.endpoint import keys, tables
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.frames import associated_data
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm.machine import RealmState, Topic

T = TypeVar("T")

#: Expanded contexts kept per worker and purpose, about 3 KB each.
MAX_WARM_KEYS: Final = 65_536


class Warm(Unpicklable, Generic[T]):
    """Things made of keys, by the keys' ids; the oldest goes. (Descriptions of keys are no names for them here: they
    hold on to the batch that they came from.)"""

    def __init__(self, make: Callable[[KeyRef, bytes], T], most: int = MAX_WARM_KEYS) -> None:
        self._make = make
        self._most = most
        # Ordered, because the first of a plain dictionary is found past all that were deleted before it.
        self._kept: OrderedDict[bytes, T] = OrderedDict()
        #: By id, if it is there.
        self.known: Callable[[bytes], T | None] = self._kept.get

    def get(self, ref: KeyRef, key_id: bytes) -> T:
        found = self._kept.get(key_id)
        return self.put(key_id, self._make(ref, key_id)) if found is None else found

    def put(self, key_id: bytes, made: T) -> T:
        self._kept[key_id] = made
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return made


class EndpointSealer(Unpicklable):
    """Keys for the groups of one topic and epoch, by reference, expanded once and kept warm."""

    def __init__(
        self,
        topic_id: bytes,
        epoch: int,
        topic_secret: Secret,
        pair_of_slot: Callable[[int], Secret],
        key_bits: int = DEFAULT_KEY_BITS,
    ) -> None:
        self.associated_data = aad = associated_data(topic_id, epoch)
        self.key_bits = key_bits
        self._topic_secret = topic_secret
        self._pair_of_slot = pair_of_slot
        self._naming_key = keys.naming_key(topic_secret)
        #: Keys of derived tables by the column, and subscribers' parts of them.
        self.tables = tables.TableKeys(topic_secret)
        #: The first 12 bytes of the ids of a table's keys.
        self.table_name = lru_cache(MAX_WARM_KEYS)(lambda slots: tables.table_name(topic_secret, slots))
        self._group_id = lru_cache(MAX_WARM_KEYS)(lambda members: keys.group_id(topic_secret, members))
        self._secrets = Warm(self._derive)
        self._body_keys = Warm(lambda ref, id: keys.body_key(self._secrets.get(ref, id), aad, key_bits))
        self._wrap_keys = Warm(lambda ref, id: keys.wrap_key(self._secrets.get(ref, id), aad, key_bits))
        #: A body key that was made before, by its key's id.
        self.known_body_key = self._body_keys.known

    def content_keys(self, nonces: Sequence[bytes]) -> list[bytes]:
        return keys.content_keys(self._topic_secret, nonces)

    def key_id(self, ref: KeyRef) -> bytes:
        """Names a key on the wire."""
        match ref:
            case PairKey(slot):
                return keys.pair_id(slot)
            case GroupKey(members):
                return self._group_id(members)
            case TableKey(slots, pattern):
                return tables.key_id(self.table_name(slots), pattern)
            case GrownKey(shape, packed):
                return keys.grown_id(self._naming_key, shape, packed)

    def grown_ids(self, shapes: Sequence[bytes], packed: Sequence[bytes]) -> list[bytes]:
        """`key_id` for many grown keys."""
        return keys.grown_ids(self._naming_key, shapes, packed)

    def body_key(self, ref: KeyRef, key_id: bytes | None = None) -> SealingKey:
        """The key that seals an event directly, for the one key that its group uses."""
        return self._body_keys.get(ref, key_id or self.key_id(ref))

    def wrap_key(self, ref: KeyRef, key_id: bytes | None = None) -> SealingKey:
        """The key that carries content keys to the holders of a key."""
        return self._wrap_keys.get(ref, key_id or self.key_id(ref))

    def secret(self, ref: KeyRef, key_id: bytes | None = None) -> bytes:
        """Raw, for masks."""
        return self._secrets.get(ref, key_id or self.key_id(ref)).reveal()

    def hand_out(self, to: PairKey, ref: KeyRef, key_id: bytes | None = None) -> bytes:
        """A key's secret, sealed for one of its holders."""
        if isinstance(ref, PairKey):
            raise Bug("a pair key was to be handed out, which its owner has from the start")
        if to.slot not in ref.members:
            raise Bug(f"slot {to.slot} was to be handed a key of a group that it is no member of")
        name = key_id or self.key_id(ref)
        carrier = keys.handout_key(self._pair_of_slot(to.slot), name, self.associated_data, self.key_bits)
        return carrier.seal(keys.HANDOUT_NONCE, self.secret(ref, name))

    def hand_out_table(self, slots: tuple[int, ...], wanted: Sequence[int]) -> list[bytes]:
        """Their parts of a table, sealed for the subscribers in some of its slots. All together cost as much as one."""
        if not set(wanted) <= set(slots):
            raise Bug("a part of a table was to be given to somebody without a place in it")
        name, sealed = self.table_name(slots), []
        for slot, part in zip(wanted, self.tables.parts(slots, wanted), strict=True):
            carrier = keys.table_key(self._pair_of_slot(slot), name, self.associated_data, self.key_bits)
            sealed.append(carrier.seal(keys.HANDOUT_NONCE, part))
        return sealed

    def _derive(self, ref: KeyRef, key_id: bytes) -> Secret:
        match ref:
            case PairKey(slot):
                return self._pair_of_slot(slot)
            case GroupKey(members):
                return keys.group_secret(self._topic_secret, members)
            case TableKey(slots, pattern):
                return Secret(self.tables.key(slots, pattern))
            case GrownKey():
                return self._grow(ref, key_id)

    def _grow(self, ref: GrownKey, key_id: bytes) -> Secret:
        """From the nearest stem that is known, or from the tile at the end of them."""
        stems, root = ref.find_lineage()
        names = self.grown_ids([shape for shape, _ in stems], [packed for _, packed in stems])
        known, missing = None, len(names)
        for at, name in enumerate(names):
            known = self._secrets.known(name)
            if known is not None:
                missing = at
                break
        secret = known or self._secrets.get(root, self.key_id(root))
        for name in reversed(names[:missing]):
            secret = self._secrets.put(name, keys.grown_secret(secret, name))
        return keys.grown_secret(secret, key_id)


def sealer_of(
    state: RealmState,
    topic: Topic,
    broker: BrokerSecrets,
    name_of: Callable[[int], str],
    incarnation: bytes | None = None,
) -> EndpointSealer:
    """The keys of a topic's current epoch and of the broker's present incarnation, unless another one is named, for
    subscribers by slot."""
    at = state.incarnation(topic.name, broker.name) if incarnation is None else incarnation
    return sealer_with(topic, broker.topic_keys(state, topic), broker.name, at, name_of)


def sealer_with(
    topic: Topic, keys: TopicKeys, broker: str, incarnation: bytes, name_of: Callable[[int], str]
) -> EndpointSealer:
    """What a broker of that name seals with in an incarnation, made by whoever has the topic's keys of an epoch."""

    def pair_of_slot(slot: int) -> Secret:
        return keys.mailbox_key(name_of(slot), broker, incarnation)

    root, bits = keys.content_root(broker, incarnation), topic.parameters.key_bits
    return EndpointSealer(topic.id, keys.epoch, root, pair_of_slot, bits)
