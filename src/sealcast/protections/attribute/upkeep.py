"""What a peer removes of its own: frames of its publisher's log, and sealed events of its subscriber's inbox, when they
are older than the topic keeps them, or more.

    a publisher's log      frames that went out, by its peer's account (`protections.kept_frames`)
    a subscriber's inbox   records, by the inbox's own ledger (`protections.due`); a signed note takes the place of each
                           (`protections.withdrawing`), and the subscriber is told what it had not read

Nobody is asked, and nobody is told: each peer does this for itself, and what lies with others is theirs. What a peer
keeps for others it lets go within a day in any case. A frame that went out was taken by every rendezvous, or was given
up for its age; until then it stays.

An inbox also says which events came before. So a record stays, whatever its size, while an event of it could come
again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from contextlib import closing
from typing import Final, NamedTuple

from sealcast.log.journal import DirectoryJournal, KeptJournal
from sealcast.log.ledger import Ledger
from sealcast.log.pieces import PieceStore
from sealcast.log.reseals import Removal
from sealcast.protections import kept_frames
from sealcast.protections.attribute.ledger import PeerLedger
from sealcast.protections.due import records_due
from sealcast.protections.steps import EmptiedPiece
from sealcast.protections.withdrawing import withdraw
from sealcast.trust.handles import EntityRealm
from sealcast.wire import peer_pieces

_WHY: Final = "kept no longer, by the topic's retention"
#: In notes on an inbox: its owner, and there is nobody else.
_OWNER: Final = 0


class Removed(NamedTuple):
    """What one peer removed."""

    frames: int = 0
    records: int = 0
    events: int = 0


class OwnInbox:
    """A subscriber's inbox, whose records can be emptied (`withdrawing.Emptying`)."""

    def __init__(self, realm: EntityRealm, topic: str, own: PeerLedger) -> None:
        self.realm, self.topic, self._own = realm, topic, own

    @property
    def ledger(self) -> Ledger:
        return self._own.ledger

    @property
    def pieces(self) -> PieceStore:
        return self._own.pieces

    @property
    def journal(self) -> KeptJournal:
        return DirectoryJournal(self._own.paths.root)

    def emptied(self, data: bytes, version: int) -> EmptiedPiece:
        piece = peer_pieces.parse(data)
        return EmptiedPiece(peer_pieces.encode(piece.emptied(version)), {_OWNER: len(piece)} if len(piece) else {})


class PeerUpkeep:
    """The upkeep of the entities of one process."""

    def __init__(self, realm: EntityRealm) -> None:
        self._realm = realm
        #: By topic and entity: how many records of its inbox were emptied, or are known to have been.
        self._emptied: dict[tuple[str, str], int] = {}
        #: And how many bytes of frames each record of its account took, as far as they are kept.
        self._sizes: dict[tuple[str, str], dict[int, int]] = {}

    def once(self, topic: str, name: str, now_us: int | None = None) -> Removed:
        """Removes what an entity has of a topic that the topic keeps no longer. Killed at any moment, it is finished by
        doing it again. NotFound where the entity's keys are not on this machine."""
        now = self._realm.clock() if now_us is None else now_us
        return Removed(self._drop_frames(topic, name, now), *self._empty_inbox(topic, name, now))

    def _drop_frames(self, topic: str, name: str, now_us: int) -> int:
        realm, about = self._realm, self._realm.state().topic(topic)
        paths = realm.paths.topic(topic, name)
        if not (kept_frames.have_an_end(about) and paths.frames_root.is_dir() and paths.sent.ledger.is_dir()):
            return 0
        account = PeerLedger(paths.sent, realm.identity(name), about.id)
        with closing(account), realm.outbox(topic, name) as log:
            known = self._sizes.setdefault((topic, name), {})
            return kept_frames.drop(about, account.ledger, log, now_us, known, _as_they_are)

    def _empty_inbox(self, topic: str, name: str, now_us: int) -> tuple[int, int]:
        realm, about = self._realm, self._realm.state().topic(topic)
        paths = realm.paths.topic(topic, name)
        if not about.parameters.pieces_end or not paths.ledger.is_dir():
            return 0, 0
        with closing(PeerLedger(paths, realm.identity(name), about.id)) as own:
            ledger, begin = own.ledger, self._emptied.get((topic, name), 0)
            due, young_us = records_due(about, ledger, now_us, begin), now_us - about.looked_back_us
            known = bisect_right(range(ledger.end()), young_us, key=lambda at: ledger.at(at).entry.end.time_us)
            due = range(begin, min(due.stop, known))
            if not due:
                return 0, 0
            done = withdraw(OwnInbox(realm, topic, own), due, _WHY, Removal.RETENTION)
            self._emptied[topic, name] = due.stop
            return done.records, done.deliveries


def _as_they_are(starts: Mapping[int, int], old: Mapping[int, int]) -> Mapping[int, int]:
    """Nobody but its own peer takes anything out of a publisher's log."""
    return old
