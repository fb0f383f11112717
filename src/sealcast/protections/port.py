"""The protection port: everything in which protections differ, behind three interfaces. The rest exists once.

    client side     how events become messages, how interests are stated, how deliveries are opened
    broker side     the steps that a broker runs on a span of its log
    witness side    do a step again, trace an event, state facts, say who learns what

A protection is a value of `model.protection` and a room here of the same name. Every room has the same files:

    README.md       paper, section map, assumption, deviations
    client.py       CLIENT: ClientSide
    broker.py       BROKER: BrokerSide; imports nothing that opens events for subscribers
    witness.py      WITNESS: WitnessSide

Nobody outside the room asks for a protection's name: a side is taken from the topic's protection (`client_side`,
`broker_side`, `witness_side`), and a process loads the sides that it plays and no other. One conformance suite
(tests/protections) runs over the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from sealcast.errors import SealcastError
    from sealcast.model.event import OpenedEvent, Position
    from sealcast.model.protection import Protection
    from sealcast.model.schema import Schema, Value
    from sealcast.protections.steps import OpenStep
    from sealcast.trust.handles import BrokerRealm, EntityRealm
    from sealcast.trust.keys.identity import Identity
    from sealcast.trust.realm.state import RealmState

# --- client side --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checked:
    """An event that its schema admits, parsed."""

    values: Mapping[str, Value]
    payload: bytes
    content_type: str


#: How many events, and the messages that each broker gets of them: one frame's worth.
Messages = tuple[int, Mapping[str, list[bytes]]]


class Way(Protocol):
    """How the events of one publisher go."""

    def take(self, state: RealmState) -> Sequence[str]:
        """Goes by the newest registry from now on; the brokers that get frames, the first being the one that events
        are named by."""

    def check(self, event: Checked) -> None:
        """EventRejected if it cannot go this way, though its schema admits it."""

    def messages(self, batch: Sequence[Checked]) -> Iterator[Messages]:
        """A batch that would fit into a frame as it is, as one or more frames' messages."""


@dataclass(frozen=True, slots=True)
class Interest:
    """One filter of one subscriber."""

    id: str
    topic: str
    subscriber: str
    #: None where this machine does not know it: on some topics filters are their subscriber's own.
    filter: str | None
    #: The broker that serves it.
    broker: str | None
    #: What the filter costs, in the protection's own units, for `--json`.
    cost: Mapping[str, int]


class Interests(Protocol):
    """What one subscriber wants on one topic."""

    #: Why the broker does not know of the last change yet, if so.
    trouble: SealcastError | None

    def add(self, wanted: Sequence[tuple[str, str | None]], *, broker: str | None = None) -> list[Interest]:
        """Filters, each with an id or None for one that is made; all or none. FilterRejected says what this protection
        can express."""

    def remove(self, ids: Sequence[str]) -> None: ...
    def list(self) -> list[Interest]: ...
    def refresh(self) -> None:
        """Tells the broker what it does not know yet, where that is the subscriber's to do."""

    def close(self) -> None: ...


class Inbox(Protocol):
    """What one subscriber gets on one topic, in order, wherever it is served. A delivery is opaque to its reader."""

    def look(self) -> None:
        """Before every look: whether anyone has to be told something (a later token, a filter)."""

    def locate(self, text: str) -> None:
        """Goes to the place that `--from` names (log/place.py); the durable cursor stays."""

    def deliveries(self) -> Iterator[Any]:
        """Everything after the current place that is committed by now."""

    def open(self, delivery: Any) -> OpenedEvent:
        """Opened with the subscriber's own keys and verified; CannotOpen."""

    def passed(self, delivery: Any) -> None:
        """The current place is after this one."""

    def acknowledge(self, delivery: Any) -> None:
        """Durably done with this and all before it."""

    def between(self, first: int, end: int) -> Iterator[OpenedEvent]:
        """What its broker's ledger records hold for it: for a reader that keeps its place itself."""

    def lag(self) -> int: ...
    def close(self) -> None: ...


class ClientSide(Protocol):
    def way(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> Way: ...
    def interests(self, realm: EntityRealm, topic: str, subscriber: str) -> Interests: ...
    def inbox(self, realm: EntityRealm, topic: str, subscriber: str, *, broker: str | None) -> Inbox: ...
    def cost(self, text: str, schema: Schema) -> Mapping[str, int]:
        """What a filter costs; FilterRejected where this protection cannot express it."""


# --- broker side --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """What brokers of a topic run. protections/steps.py says what a step is, and what each of its methods is for."""

    #: The steps that an event passes, in order. The first reads frames (`FramesStep`); each of the others reads what
    #: steps before it made, or what it made itself at another broker.
    steps: tuple[type[OpenStep], ...]
    #: The command that lets a `{broker}` take part in a `{topic}`.
    joining: str


# --- witness side -------------------------------------------------------------------------------------


class WitnessSide(Protocol):
    def why(self, realm: BrokerRealm, topic: str, event: Position, subscriber: str) -> Any: ...


# --- taking a side ------------------------------------------------------------------------------------


def client_side(protection: Protection) -> ClientSide:
    """For publishers and subscribers."""
    return cast(ClientSide, import_module(f"sealcast.protections.{protection.name}.client").CLIENT)


def broker_side(protection: Protection) -> BrokerSide:
    """For the pipeline."""
    return cast(BrokerSide, import_module(f"sealcast.protections.{protection.name}.broker").BROKER)


def witness_side(protection: Protection) -> WitnessSide:
    """For `check`, `why`, `status`, `rejected` and `explain`."""
    return cast(WitnessSide, import_module(f"sealcast.protections.{protection.name}.witness").WITNESS)
