"""Users with keys, sealed filters and events of one topic, and the plaintext truth about who gets what."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from sealcast.filters.check import check
from sealcast.filters.evaluate import evaluate
from sealcast.filters.labels import Labeller, label_filter
from sealcast.filters.parse import parse
from sealcast.filters.tree import Condition
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.mqtt.messages import Message
from sealcast.mqtt.table import TableEpoch, TableFilter, TableTopic
from sealcast.primitives.groups import Exponent
from sealcast.primitives.halves import MasterKey, broker_half
from sealcast.primitives.secrets import Secret
from sealcast.protections.searchable.blocks import most_trapdoors
from sealcast.protections.searchable.scheme import Holder, UserKeys
from sealcast.wire.searching import SealedFilter, packed_block

TOPIC = "fleet"
TOPIC_ID = bytes(range(16))
SCHEMA = Schema(
    (
        Attribute("kind", Type.STRING, max_length=4),
        Attribute("level", Type.INT, min=0, max=99),
        Attribute("alarm", Type.BOOL),
    )
)
KINDS = ("a", "ab", "abc", "b", "ba", "c")


def message(epoch: int, publisher: str, block: bytes, rest: bytes) -> bytes:
    """An MQTT message whose record and header are none: brokers look at neither."""
    return Message(epoch, publisher, b"header", 3, b"rec" + block + rest).to_bytes()


def number_in(payload: bytes) -> int:
    """The event's number, which the tests put last."""
    return int.from_bytes(payload[-4:], "big")


@dataclass
class World:
    """One topic. Everything is drawn from the seed, except what the scheme itself draws."""

    seed: int = 1
    tag_bits: int = 16
    random: Random = field(init=False)
    filters: list[tuple[str, int, Condition, SealedFilter]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._labeller = Labeller(SCHEMA)
        self._keys: dict[tuple[str, int], UserKeys] = {}
        self._trapdoors: dict[tuple[str, int, bytes], bytes] = {}

    def half(self, user: str, epoch: int = 1) -> Exponent:
        return broker_half(Secret(b"t" * 32), f"{epoch}/{user}".encode())

    def keys(self, user: str, epoch: int = 1) -> UserKeys:
        if (user, epoch) not in self._keys:
            master = MasterKey.derive(Secret(b"c" * 32), epoch.to_bytes(8, "big"))
            self._keys[user, epoch] = UserKeys(
                master.part(self.half(user, epoch)), Holder(TOPIC_ID, epoch, user), self.tag_bits
            )
        return self._keys[user, epoch]

    # --- subscribers ------------------------------------------------------------------------------------------------

    def subscribe(self, user: str, text: str, epoch: int = 1) -> None:
        condition = check(parse(text), SCHEMA).condition
        slots = [c.slots for c in label_filter(condition, SCHEMA).conjunctions]
        self.filters.append((user, epoch, condition, self.keys(user, epoch).seal_filter(slots)))

    def any_filter(self) -> str:
        low = self.random.randrange(100)
        return self.random.choice(
            [
                f"kind = '{self.random.choice(KINDS)}'",
                f"kind LIKE '{self.random.choice('abc')}%' AND level >= {low}",
                f"level BETWEEN {low} AND {low + self.random.randrange(30)}",
                f"alarm = TRUE AND level < {low}",
                f"kind = '{self.random.choice(KINDS)}' OR (alarm = FALSE AND level > {low})",
            ]
        )

    # --- publishers -------------------------------------------------------------------------------------------------

    def event(self) -> dict[str, Value]:
        values: dict[str, Value] = {
            "kind": self.random.choice(KINDS),
            "level": self.random.randrange(100),
            "alarm": self.random.random() < 0.3,
        }
        return {name: value for name, value in values.items() if self.random.random() > 0.05}

    def block(self, publisher: str, values: dict[str, Value], epoch: int = 1, fresh: bool = False) -> bytes:
        keys = self.keys(publisher, epoch)
        if fresh:
            return keys.block(self._labeller.labels(values))
        made = []
        for label in self._labeller.labels(values):
            known = (publisher, epoch, label)
            if known not in self._trapdoors:
                self._trapdoors[known] = keys.trapdoor(label)
            made.append(self._trapdoors[known])
        return packed_block(made)

    def events(self, publisher: str, count: int, epoch: int = 1) -> Iterator[tuple[dict[str, Value], bytes]]:
        """Events as they are and as they are published, numbered from 0 on."""
        for number in range(count):
            values = self.event()
            rest = self.random.randbytes(40) + number.to_bytes(4, "big")
            yield values, message(epoch, publisher, self.block(publisher, values, epoch), rest)

    # --- the truth, and the table -----------------------------------------------------------------------------------

    def wants(self, user: str, values: dict[str, Value], epoch: int = 1) -> bool:
        """By the filters as they were written, in clear."""
        return any(
            evaluate(condition, values) is True
            for name, of, condition, _ in self.filters
            if name == user and of == epoch
        )

    def topic(self, publishers: Sequence[str], without: Sequence[str] = ()) -> TableTopic:
        """What a broker knows, but for the users that were revoked."""
        numbers = sorted({epoch for _, epoch, _, _ in self.filters})
        return TableTopic(
            TOPIC,
            TOPIC_ID,
            most_trapdoors(SCHEMA),
            [
                TableEpoch(
                    number,
                    {name: self.half(name, number) for name in publishers if name not in without},
                    [
                        TableFilter(user, self.half(user, number), sealed)
                        for user, epoch, _, sealed in self.filters
                        if epoch == number and user not in without
                    ],
                )
                for number in numbers
            ],
        )


def users(count: int) -> list[str]:
    return [f"user{number:02}" for number in itertools.islice(itertools.count(), count)]
