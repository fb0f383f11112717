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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeAlias, cast

from sealcast.model.dataclass import dataclass
from sealcast.model.protection import PROTECTIONS

if TYPE_CHECKING:
    from sealcast.broker.gate import Unfit
    from sealcast.control.center.rules import Rule, Rules
    from sealcast.control.desk import More
    from sealcast.errors import EventRejected, SealcastError
    from sealcast.model.event import OpenedEvent, Position
    from sealcast.model.protection import Protection
    from sealcast.model.schema import Schema
    from sealcast.protections.checked import CheckedBatch
    from sealcast.protections.opened import OpenedBatch, OpenedPart
    from sealcast.protections.stays import FoundPart, Stays
    from sealcast.protections.steps import OpenStep
    from sealcast.protections.witness.answer import WhyAnswer
    from sealcast.protections.witness.facts import Facts
    from sealcast.protections.witness.mailboxes import ReceivedDelivery
    from sealcast.protections.witness.report import CheckReport
    from sealcast.trust.deployment import Realm
    from sealcast.trust.handles import BrokerRealm, EntityRealm
    from sealcast.trust.keys.identity import Identity
    from sealcast.trust.keys.topic_keys import EntityKeys
    from sealcast.trust.realm.state import RealmState
    from sealcast.trust.realm.topics import Topic

# --- client side --------------------------------------------------------------------------------------


#: How many events, and the messages that each broker gets of them: one frame's worth.
Messages = tuple[int, Mapping[str, list[bytes]]]


class Way(Protocol):
    """How the events of one publisher go: what they become before they are sealed in frames, and who gets those."""

    def take(self, state: RealmState, epoch: int) -> Sequence[str]:
        """Goes by the newest registry from now on, and seals in that epoch, as frames are; the brokers that get frames,
        the first being the one that events are named by."""

    def check(self, batch: CheckedBatch) -> Mapping[int, EventRejected]:
        """Those that cannot go this way, though their schema admits them."""

    def messages(self, batch: CheckedBatch) -> Iterator[Messages]:
        """A batch that would fit into a frame as it is, as one or more frames' messages."""


class FilterCost(NamedTuple):
    """What a filter costs, in the protection's own units: by name, for `--json`, and in words. Often nothing."""

    facts: Mapping[str, int]
    words: str
    #: What its author should know beyond that.
    remarks: tuple[str, ...] = ()


#: A subscription as it is asked for: subscriber, filter, and an id or None for one that is made.
Wanted = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class Interest:
    """One filter of one subscriber."""

    id: str | None
    topic: str
    subscriber: str
    #: No filter where no key on this machine opens it; no id either where filters are their subscriber's own.
    filter: str | None
    #: The broker that serves its subscriber; the subscriber itself, where it is its own peer.
    broker: str | None
    #: What its owner should know after adding it.
    remarks: tuple[str, ...] = ()


class Interests(Protocol):
    """What one subscriber wants on one topic, stated with its own keys. Close it, or use it in a `with` block."""

    @property
    def trouble(self) -> SealcastError | None:
        """Why the broker was not told of the last change yet, if so. It is tried again."""

    def add(self, text: str, id: str | None = None) -> Interest:
        """A filter; without an id it gets the subscriber's name and a number. FilterRejected says what this protection
        can express."""

    def remove(self, ids: Iterable[str]) -> None:
        """Ends filters, all of them or none."""

    def filters(self) -> list[Interest]:
        """The filters, oldest first."""

    def refresh(self) -> object:
        """Tells the broker what it does not know yet: filters, later tokens."""

    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


@dataclass(slots=True)
class Measured:
    """What became of a reader's keys so far, and what those take that it holds now."""

    given: int = 0
    derived: int = 0
    asked: int = 0
    let_go: int = 0
    held: int = 0
    nbytes: int = 0

    @classmethod
    def total(cls, each: Iterable[Measured]) -> Measured:
        return cls(*(sum(numbers) for numbers in zip(*map(astuple, each), strict=True)))


#: The most that a reader's keys take, unless told, in bytes.
DEFAULT_KEY_MEMORY: Final = 64 << 20
#: How a subscriber asks a broker's desk for keys: a signed request in, a reply out.
Ask = Callable[[bytes], bytes]


#: The keys that the key center handed to somebody for one epoch; CannotOpen says why there are none.
KeysOf: TypeAlias = "Callable[[int], EntityKeys]"
#: What a reader asks of the past, by epoch: its filter as brokers of the topic take filters. None for an epoch whose
#: events it could not open.
AsksOf: TypeAlias = "Callable[[int], str | None]"
#: Opens one delivery of a piece by its event and its handle, or raises CannotOpen.
Opens: TypeAlias = "Callable[[Any, int, int], OpenedEvent]"


class Proven(NamedTuple):
    """What a subscriber opened of a piece: these events; and so many it could not, the first for this reason."""

    events: Sequence[int]
    unopened: int
    why: str | None


class Inbox(Protocol):
    """What one subscriber gets on one topic, and how it opens it."""

    @property
    def mail(self) -> Stays[Any]:
        """Its mailboxes. What a delivery is, only `open` knows."""

    def look(self, state: RealmState) -> None:
        """Before every look at the mailboxes: whether anyone has to be told something (a later token, a filter)."""

    def open(self, found: FoundPart[Any]) -> OpenedPart:
        """Opened with the subscriber's own keys and verified, all at once; why each of the others was not."""

    def unwanted(self, opened: OpenedBatch) -> Sequence[int]:
        """Which opened events are not for it, by its own filters; none where only brokers could tell."""

    def report(self, events: Sequence[OpenedEvent], count: int) -> None:
        """Tells whoever should know that so many events came which are not for it, these among them; Unavailable or
        Rejected when nobody took it. Nothing, where all that comes is wanted."""

    def prove(self, broker: str, piece: Any, known: dict[int, bytes]) -> Proven:
        """Opens everything that one of a broker's pieces has for it. `known` is what those who opened the same piece
        before found to open its events by: who comes by the same has opened the same."""

    @property
    def keys(self) -> Measured:
        """Keys that came with deliveries."""

    @property
    def trouble(self) -> SealcastError | None:
        """Why a broker was not told what it has to know, if so. It is tried again."""

    def close(self) -> None: ...


class Reader(NamedTuple):
    """Who reads what, and what it was told about how."""

    realm: EntityRealm
    topic: str
    name: str
    #: The broker where it wants to be from now on.
    broker: str | None
    ask: Ask | None
    #: The most that keys may take, in bytes.
    key_memory: int


class ClientSide(Protocol):
    """For publishers and subscribers, and for commands that speak in their names."""

    def way(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> Way: ...
    def inbox(self, reader: Reader) -> Inbox:
        """NotFound for one that never subscribed."""

    def mail(self, realm: EntityRealm, topic: str, subscriber: str) -> Stays[Any]:
        """A subscriber's mailboxes, without its keys: for counting, and for those who keep their place themselves."""

    def key_asker(self, realm: EntityRealm, topic: str, subscriber: str) -> AbstractContextManager[Ask | None]:
        """Whom the subscriber asks for keys that it has let go; None where it never has to."""

    def opens_with(self, state: RealmState, topic: str, broker: str, slot: int, keys_of: KeysOf) -> Opens:
        """What opens a slot's deliveries with these keys alone, whatever the registry says of their owner by now: for
        trying keys that were kept or stolen."""

    def move(self, realm: Realm, topic: str, subscriber: str, to: str | None, *, abandon: bool = False) -> bool:
        """Another broker serves it; whether the one that it leaves still does. With `abandon`, that one is gone for
        good."""

    def vet(self, text: str, topic: Topic) -> None:
        """FilterRejected for what is no filter of the topic's schema, and for what its protection cannot express."""

    def asks_of_past(self, realm: EntityRealm, topic: str, reader: str, text: str) -> AsksOf:
        """What a reader asks of the past with a filter, made with its own keys. FilterRejected as `vet`; Misuse where
        brokers cannot replay."""

    def cost(self, text: str, schema: Schema) -> FilterCost:
        """What a filter costs that was vetted."""

    def interests(self, realm: EntityRealm, topic: str, subscriber: str) -> Interests:
        """NotFound where the subscriber's keys are not on this machine."""

    def subscribe_many(
        self, realm: Realm, topic: str, wanted: Sequence[Wanted], *, broker: str | None = None
    ) -> list[Interest]:
        """By whoever can on this machine: an administrator, or the subscribers themselves. Whoever is new is at
        `broker`."""

    def listed(self, realm: EntityRealm, topic: str, subscriber: str | None = None) -> list[Interest]:
        """Of all subscribers, or of one, as far as it is known here; NotFound where it would take keys that are not."""

    def filter_owners(self, realm: EntityRealm, topic: str) -> list[str]:
        """The subscribers whose filters are kept on this machine and nowhere else."""

    def refresh_here(self, realm: EntityRealm, topic: str) -> Iterator[tuple[str, bool | SealcastError]]:
        """`Interests.refresh` for every subscriber whose keys are here and who has something to tell: its name, and
        whether it told its broker anything, or why it could not."""


# --- broker side --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """What brokers of a topic run. protections/steps.py says what a step is, and what each of its methods is for."""

    #: The steps that an event passes, in order. The first reads frames (`FramesStep`); each of the others reads what
    #: steps before it made, or what it made itself at another broker.
    steps: tuple[type[OpenStep], ...]
    #: The command that lets a `{broker}` take part in a `{topic}`.
    joining: str
    #: What else a broker of that name is asked over its control topic, by kind of request, and what answers.
    requests: Callable[[BrokerRealm, str], More] = lambda realm, broker: {}
    #: Which payloads of a batch, that of each event in order, are none that publishers of the topic make, and why.
    unfit: Unfit | None = None


# --- witness side -------------------------------------------------------------------------------------


class Audit(Protocol):
    """Some part of a topic to be checked: what its brokers did is done again and compared."""

    def size(self) -> int:
        """How much there is to do: what `run` reports progress in."""

    def run(self, told: Callable[[int], None]) -> CheckReport:
        """Adds what it finds to the topic's report; `told` hears how much is done with."""


class Party(NamedTuple):
    """Somebody, or a coalition, and what it learns."""

    who: str
    learns: Sequence[str]
    cannot: Sequence[str]
    #: Of a coalition: who that would be in this topic.
    here: str = ""


class Explanation(NamedTuple):
    """Whom a protection trusts with what, and what is left knowingly."""

    trusted: str
    parties: Sequence[Party]
    left: Sequence[str]
    coalitions: Sequence[Party] = ()


class WitnessSide(Protocol):
    def audits(self, realm: Realm, topic: str, *, by_reference: bool) -> Sequence[Audit]:
        """Everything that can be checked here. All of them write into one report, which also says what cannot be
        judged; `by_reference` asks the slow evaluator, where filters can be asked at all."""

    def why(self, realm: Realm, topic: str, event: Position, subscriber: str) -> WhyAnswer:
        """How far an event came on its way to a subscriber, and why."""

    def status(self, realm: Realm, topic: str) -> Iterator[Facts]:
        """How the topic stands at each of its brokers."""

    def refusals(self, realm: Realm, topic: str) -> Iterator[Iterator[dict[str, Any]]]:
        """What each of its brokers refused, newest first within each."""

    def received(self, realm: Realm, topic: str, broker: str) -> Mapping[str, ReceivedDelivery]:
        """Who was sent how much by a broker, by its ledger."""

    def explain(self, state: RealmState, topic: str) -> Explanation:
        """Who can learn what of the topic."""


# --- taking a side ------------------------------------------------------------------------------------


def client_side(protection: Protection) -> ClientSide:
    """For publishers and subscribers."""
    return cast(ClientSide, import_module(f"sealcast.protections.{protection.name}.client").CLIENT)


def broker_side(protection: Protection) -> BrokerSide:
    """For the pipeline."""
    return cast(BrokerSide, import_module(f"sealcast.protections.{protection.name}.broker").BROKER)


def center_rules(rules: Rules) -> Iterator[tuple[str, Rule]]:
    """What key centers are asked besides, for keys that protections have them issue: for `sealcast serve`, and for
    whoever asks a center that is at hand."""
    for kind in PROTECTIONS.values():
        if kind.peers:
            yield from import_module(f"sealcast.protections.{kind.name}.center").rules(rules)


def witness_side(protection: Protection) -> WitnessSide:
    """For `check`, `why`, `status`, `rejected` and `explain`."""
    return cast(WitnessSide, import_module(f"sealcast.protections.{protection.name}.witness").WITNESS)
