"""Where a realm's shared things are, as its clients reach them: one port, whoever keeps them.

    LocalSite      the realm's own directory on this machine
    GatewaySite    a gateway (`gateway_site`)

What is a client's own (its keys, wallets, cursors, the log of its peer) is never here: it lies in `realm.paths`, the
client's home, which is the realm's directory where the realm is on this machine. A client believes nothing that it gets
from a site. It verifies what the realm's authors, brokers and publishers signed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from sealcast.log import suspended
from sealcast.log.control_topics import AskingPlane, ControlPlane
from sealcast.log.cursor import Saved
from sealcast.log.forwarded import BrokerTopic
from sealcast.log.journal import DirectoryJournal, Journal, JournalPart
from sealcast.log.lane_log import LaneLog, LocalLaneLog
from sealcast.log.post_log import PostLog
from sealcast.log.suspended import SuspensionNote
from sealcast.trust.layout import Layout, RealmMark
from sealcast.trust.realm.state import RealmState
from sealcast.trust.storage.opening import open_store

if TYPE_CHECKING:
    from sealcast.trust.storage.store import Store


Told = Callable[[Saved], None]


class Posts(Protocol):
    """The posts to one broker, for those who post."""

    def check_share(self, sender: str, /) -> None:
        """Busy when so many posts of a sender wait that it has to wait itself."""

    def append(self, made: Sequence[bytes], /) -> None:
        """All of them, neighbours, durable on return; Busy when too many are unread."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...


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

    def registry(self) -> Store:
        """The signed history."""

    def frames(self, state: RealmState, topic: str, broker: str, number: int) -> LaneLog:
        """The partition of a broker's that a publisher appends to, by its number among those."""

    def journal(self, topic: str, broker: str, part: JournalPart = "") -> Journal:
        """What a broker delivered, handed on or replayed."""

    def posts(self, topic: str, broker: str) -> Posts:
        """What a broker of a tree is told by those below it."""

    def control(self) -> AskingPlane:
        """Control topics, for one who asks over them."""

    def mark(self) -> bytes:
        """What the realm says of itself now: `realm.json`, with where its discovery nodes listen."""

    def suspended(self, topic: str, broker: str) -> dict[str, SuspensionNote]:
        """Subscriptions that a broker suspended."""

    def told(self, state: RealmState, topic: str, broker: str, part: JournalPart = "") -> Told | None:
        """Hears when a reader's own cursor has moved; None where everybody sees the cursor itself."""


class LocalSite:
    """A realm in a directory of this machine."""

    def __init__(self, paths: Layout, mark: RealmMark) -> None:
        self._paths, self._mark = paths, mark

    @property
    def shown(self) -> str:
        return str(self._paths.root)

    @property
    def here(self) -> bool:
        return True

    def of(self, name: str) -> LocalSite:
        return self

    def registry(self) -> Store:
        return open_store(self._mark.registry_address(self._paths))

    def frames(self, state: RealmState, topic: str, broker: str, number: int) -> LaneLog:
        paths = self._paths.topic(topic, broker)
        place, each = state.broker_number(broker), state.topic(topic).partitions
        return LocalLaneLog(BrokerTopic(paths.frames_root, each, place, len(state.brokers())), number, paths.ledger)

    def journal(self, topic: str, broker: str, part: JournalPart = "") -> Journal:
        return DirectoryJournal(self._paths.topic(topic, broker).root / part)

    def posts(self, topic: str, broker: str) -> PostLog:
        return PostLog(self._paths.topic(topic, broker).filter_posts)

    def control(self) -> ControlPlane:
        return ControlPlane(self._paths.root)

    def mark(self) -> bytes:
        return self._paths.mark.read_bytes()

    def suspended(self, topic: str, broker: str) -> dict[str, SuspensionNote]:
        return suspended.notes(self._paths.topic(topic, broker).root)

    def told(self, state: RealmState, topic: str, broker: str, part: JournalPart = "") -> Told | None:
        return None
