"""Where a realm's shared things are, as its clients reach them: one port, whoever keeps them.

    LocalSite      the realm's own directory on this machine
    GatewaySite    a gateway (`gateway_site`)
    RealmSite      either, and for a broker on a machine of its own, that machine's gateway

What is a client's own (its keys, wallets, cursors, the log of its peer) is never here: it lies in `realm.paths`, the
client's home, which is the realm's directory where the realm is on this machine. A client believes nothing that it gets
from a site. It verifies what the realm's authors, brokers and publishers signed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from sealcast.log import suspended
from sealcast.log.control_topics import ControlPlane, ServingPlane
from sealcast.log.cursor import Saved
from sealcast.log.forwarded import BrokerTopic, ForwardedLog
from sealcast.log.journal import Journal, JournalPart
from sealcast.log.lane_log import LaneLog, LocalLaneLog
from sealcast.log.post_log import FilterPosts
from sealcast.log.suspended import SuspensionNote
from sealcast.trust.carrying import Carriers
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys.identity import Identity
from sealcast.trust.layout import Layout, RealmMark
from sealcast.trust.realm.state import BrokerGateway, RealmState
from sealcast.trust.shared_control import KeptPlane, SharedPlane, list_node, listed_nodes, server_of
from sealcast.trust.storage.address import Server
from sealcast.trust.storage.opening import open_store

if TYPE_CHECKING:
    from sealcast.log.groups import ConsumerGroup, TopicGroups
    from sealcast.trust.storage.opening import AnyStore


Told = Callable[[Saved], None]


class Member(NamedTuple):
    """Somebody of the realm whose keys are on this machine."""

    name: str
    role: Role
    identity: Callable[[], Identity]


class Posts(Protocol):
    """The posts to one broker, for those who post."""

    def check_share(self, sender: str, /) -> None:
        """Busy when so many posts of a sender wait that it has to wait itself."""

    def append(self, made: Sequence[bytes], /) -> None:
        """All of them, neighbours, durable on return; Busy when too many are unread."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


class TakenFrames(Protocol):
    """A broker's frames in another broker's log, for the one that forwards them."""

    def next_origin(self) -> int:
        """One past the last that was taken over, by its offset in the origin's log."""

    def take(self, frames: Sequence[tuple[int, bytes]], /) -> int:
        """Appends (origin's offset, frame) pairs, durably, each once; how many were news."""

    def through(self, taken: int) -> int:
        """One past the origin's offset of the last of the first `taken` frames; 0 when there is none."""

    def index_of(self, origin: int) -> int:
        """How many frames came from before that offset of the origin."""


class Site(Protocol):
    """The shared things of one realm."""

    @property
    def shown(self) -> str:
        """As messages call it."""

    @property
    def here(self) -> bool:
        """Whether the realm's own files are on this machine."""

    def of(self, name: str) -> Site:
        """The same, asked by one entity whose keys are in this home."""

    def registry(self) -> AnyStore:
        """The signed history."""

    def frames(self, state: RealmState, topic: str, broker: str, number: int) -> LaneLog:
        """The partition of a broker's that a publisher appends to, by its number among those."""

    def journal(self, topic: str, broker: str, part: JournalPart = "", patience_s: float | None = None) -> Journal:
        """What a broker delivered, handed on or replayed. One that cannot be reached is tried for `patience_s`."""

    def forwarded(self, topic: str, broker: str, partition: int) -> TakenFrames:
        """A partition of another broker's block, in this broker's log."""

    def posts(self, topic: str, broker: str) -> Posts:
        """What a broker of a tree is told by those below it."""

    def control(self) -> ServingPlane:
        """Control topics, for one who asks or answers over them."""

    def listens(self, node: str, topic: bytes) -> bool:
        """Has a discovery node listed with where it listens; False where the list is a file of this machine, and
        whoever says so writes it."""

    def mark(self) -> bytes:
        """What the realm says of itself now: `realm.json`, with where its discovery nodes listen."""

    def suspended(self, topic: str, broker: str) -> dict[str, SuspensionNote]:
        """Subscriptions that a broker suspended."""

    def told(self, state: RealmState, topic: str, broker: str, part: JournalPart = "") -> Told | None:
        """Hears when a reader's own cursor has moved; None where everybody sees the cursor itself."""

    def group(self, topic: str, reader: str, name: str) -> ConsumerGroup:
        """A consumer group of one reader."""


class LocalSite:
    """A realm in a directory of this machine."""

    def __init__(self, paths: Layout, mark: RealmMark, state: Callable[[], RealmState], carriers: Carriers) -> None:
        self._paths, self._mark, self._state, self._carriers = paths, mark, state, carriers

    @property
    def shown(self) -> str:
        return str(self._paths.root)

    @property
    def here(self) -> bool:
        return True

    def of(self, name: str) -> LocalSite:
        return self

    def registry(self) -> AnyStore:
        return open_store(self._mark.registry_address(self._paths))

    def frames(self, state: RealmState, topic: str, broker: str, number: int) -> LaneLog:
        return LocalLaneLog(self._log(state, topic, broker), number, self._carriers.journal(state, topic, broker))

    def journal(self, topic: str, broker: str, part: JournalPart = "", patience_s: float | None = None) -> Journal:
        return self._carriers.journal(self._state(), topic, broker, part)

    def forwarded(self, topic: str, broker: str, partition: int) -> ForwardedLog:
        return self._log(self._state(), topic, broker).forwarded(partition)

    def _log(self, state: RealmState, topic: str, broker: str) -> BrokerTopic:
        return self._carriers.frames(state, topic, broker)

    def posts(self, topic: str, broker: str) -> FilterPosts:
        return self._carriers.posts(self._state(), topic, broker)

    def control(self, origin: str | None = None) -> KeptPlane:
        """As the user of this process, unless the origin of what is posted is named."""
        server = self._shared_control()
        return ControlPlane(self._paths.root, origin=origin) if server is None else SharedPlane(server, origin=origin)

    def listens(self, node: str, topic: bytes) -> bool:
        server = self._shared_control()
        if server is not None:
            list_node(server, node, topic, self._state().entity(node).certificate)
        return server is not None

    def mark(self) -> bytes:
        mark, server = self._paths.mark.read_bytes(), self._shared_control()
        if server is None:
            return mark
        nodes = [
            {"name": name, "topic": topic.hex(), "certificate": certificate.hex()}
            for name, topic, certificate in listed_nodes(server)
        ]
        return json.dumps({**json.loads(mark), "discovery": nodes}).encode()

    def suspended(self, topic: str, broker: str) -> dict[str, SuspensionNote]:
        return suspended.notes(self._paths.topic(topic, broker).root)

    def told(self, state: RealmState, topic: str, broker: str, part: JournalPart = "") -> Told | None:
        return None

    def group(self, topic: str, reader: str, name: str) -> ConsumerGroup:
        return self.groups(topic).of(reader, name)

    def groups(self, topic: str) -> TopicGroups:
        """All consumer groups of a topic."""
        from sealcast.trust.shared_groups import groups_of

        registry, about = self._mark.registry_address(self._paths), self._state().topic(topic)
        return groups_of(registry, self._mark.id, about.id, self._paths.topic(about.name).groups)

    def _shared_control(self) -> Server | None:
        """The server that has the control topics, if one has."""
        return server_of(self._mark.registry_address(self._paths))


class RealmSite:
    """A realm as one of its members reaches it: each broker's things where that broker is."""

    def __init__(self, base: Site, local: LocalSite, around: Elsewhere, name: str | None = None) -> None:
        """`base` is where the realm is; `local` is this machine, for brokers whose keys are here."""
        self.base, self.local, self._around, self._name = base, local, around, name
        #: Brokers' gateways that were dialled, by who asks there.
        self._dialled: dict[tuple[BrokerGateway, str | None], Site] = {}

    @property
    def shown(self) -> str:
        return self.base.shown

    @property
    def here(self) -> bool:
        return self.base.here

    def of(self, name: str) -> RealmSite:
        made = RealmSite(self.base.of(name), self.local, self._around, name)
        made._dialled = self._dialled
        return made

    def at(self, broker: str) -> Site:
        """The machine that a broker is on."""
        if not self.here and self._around.keys_here(broker):
            return self.local
        announced = self._around.state().gateways.get(broker)
        if announced is None:
            return self.base
        asked = announced, self._name
        if asked not in self._dialled:
            self._dialled[asked] = self._around.dial(announced, self._name)
        return self._dialled[asked]

    def is_local(self, broker: str) -> bool:
        """Whether a broker's files are on this machine."""
        return self.at(broker) is self.local or (self.here and self.at(broker) is self.base)

    def registry(self) -> AnyStore:
        return self.base.registry()

    def frames(self, state: RealmState, topic: str, broker: str, number: int) -> LaneLog:
        return self.at(broker).frames(state, topic, broker, number)

    def journal(self, topic: str, broker: str, part: JournalPart = "", patience_s: float | None = None) -> Journal:
        return self.at(broker).journal(topic, broker, part, patience_s)

    def forwarded(self, topic: str, broker: str, partition: int) -> TakenFrames:
        return self.at(broker).forwarded(topic, broker, partition)

    def posts(self, topic: str, broker: str) -> Posts:
        return self.at(broker).posts(topic, broker)

    def control(self) -> ServingPlane:
        return self.base.control()

    def listens(self, node: str, topic: bytes) -> bool:
        return self.base.listens(node, topic)

    def mark(self) -> bytes:
        return self.base.mark()

    def suspended(self, topic: str, broker: str) -> dict[str, SuspensionNote]:
        return self.at(broker).suspended(topic, broker)

    def told(self, state: RealmState, topic: str, broker: str, part: JournalPart = "") -> Told | None:
        return self.at(broker).told(state, topic, broker, part)

    def group(self, topic: str, reader: str, name: str) -> ConsumerGroup:
        return self.base.group(topic, reader, name)


class Elsewhere(NamedTuple):
    """How brokers on other machines are found and reached."""

    state: Callable[[], RealmState]
    #: Whether a broker's keys are on this machine: then it runs here.
    keys_here: Callable[[str], bool]
    #: A broker's gateway, for whoever asks.
    dial: Callable[[BrokerGateway, str | None], Site]
