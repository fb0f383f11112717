"""The check of a layered topic: what brokers did is done again and compared; what nobody here can read is not judged,
and that is said.

Of every broker, with its ledgers (`protections.witness.ledger`):
    (1) with its key file here: what a root admitted is admitted again, and gives the same bytes
    (2) with its key file here: every hop is routed again, by the table of its version, and gives the same bytes
Of every subscriber, at every broker that has something for it:
    (3) no event is in its mailbox twice, and each publisher's are in that publisher's order, as long as the overlay
        stays as it is: what is on its way when brokers move may be overtaken by what takes the new way
    (4) with its key file here: every event opens, and is what its publisher signed

It follows that what was admitted went where the tables of that time sent it. That those tables are what subscribers
asked for, only they could say: nobody else has their filters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np

from sealcast.errors import CannotOpen, Corrupt, KeyMissing, NotFound, SealcastError
from sealcast.log.entry import PieceRef
from sealcast.log.reseals import Resealed
from sealcast.protections.journals import HOPS_PART, journal_signer
from sealcast.protections.layered.admit import admit
from sealcast.protections.layered.client import opener_for
from sealcast.protections.layered.node import HOPS, HopStep
from sealcast.protections.layered.open import EventOpener
from sealcast.protections.layered.participant import Participant
from sealcast.protections.steps import StepName
from sealcast.protections.witness.frames import FramesAudit
from sealcast.protections.witness.ledger import LedgerAudit, Told
from sealcast.protections.witness.order import DeliveryOrder
from sealcast.protections.witness.report import CheckReport, Kind
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.keys.layer_keys import key_file, own_identity
from sealcast.trust.realm.state import RealmState
from sealcast.wire import frame, hops
from sealcast.wire.hops import HopPiece
from sealcast.wire.notifications import MESSAGES_PER_EVENT, parse_entries

#: A publisher's boot within a generation: in a mailbox its events have ascending numbers.
Line = tuple[bytes, int]
OpenerOf = Callable[[str], EventOpener | None]


class TopicAudit:
    """One layered topic, from the first record of every broker on this machine to the last that is there."""

    def __init__(self, realm: Realm, topic: str) -> None:
        state = realm.state()
        self._overlay = state.overlay(topic)
        self.report = CheckReport(topic, also={"lost": None, "unexpected": None})
        self._opener_of = lru_cache(None)(partial(opener_of, realm, state, topic))
        self._hops: list[HopsAudit] = []
        self._parts: list[LedgerAudit[HopPiece]] = []
        for node in filter(realm.site.is_local, self._overlay.downwards()):
            if self._overlay.parents[node] is None or realm.paths.topic(topic, node).ledger.exists():
                self._parts.append(AdmissionAudit(self.report, realm, topic, node))
            self._hops.append(HopsAudit(self.report, realm, topic, node, self._opener_of))
            self._parts.append(self._hops[-1])

    def size(self) -> int:
        return sum(part.size() for part in self._parts)

    def run(self, told: Told = lambda done: None) -> CheckReport:
        report = self.report
        for part in self._parts:
            part.run(told)
        brokers, again = len(self._hops), sum(audit.complete for audit in self._hops)
        placed = self._overlay.places
        opened = sum(self._opener_of(name) is not None for name in placed)
        report.also |= {"brokers": brokers, "brokers_routed_again": again}
        report.also |= {"subscribers": len(placed), "subscribers_opened": opened}
        if again < brokers:
            report.gap(
                f"the keys of {brokers - again} of {brokers} brokers are not all here: what those admitted and handed "
                "on was not done again"
            )
        if opened < len(placed):
            report.gap(
                f"the keys of {len(placed) - opened} of {len(placed)} subscribers are not here: what they got was not "
                "opened"
            )
        report.gap("whether the tables are what subscribers asked for: only they know their filters")
        return report


# --- (1) --------------------------------------------------------------------------------------------------------


class AdmissionAudit(FramesAudit[HopPiece]):
    """What a root admitted, admitted again where its keys are here."""

    def __init__(self, report: CheckReport, realm: Realm, topic: str, root: str) -> None:
        self._root = root
        secrets = realm.broker(root) if realm.paths.broker_key_of(root).exists() else None
        super().__init__(report, realm, topic, root, secrets, hops.parse, f"broker {root!r}: ")

    def judge(self, piece: HopPiece | None, ref: PieceRef, version: int, where: str, later: Resealed | None) -> None:
        if piece is not None:
            self.report.events += piece.counts.get("admitted", 0)
        if piece is None or self.secrets is None or (later is not None and later.removal is not None):
            return
        ruled = self.ruled(ref.partition, ref.first, ref.end, piece)
        if ruled is not None and _same(admit(ruled, self.gate(version), self._root), ref):
            return
        if ruled is None or self.blind:
            self.report.gap(f"some of what {self._root!r} admitted is too old to be admitted again")
            return
        text = (
            f"frames {ref.first} to {ref.end - 1} of partition {ref.partition} give something else than {ref.name} has"
        )
        self.add(Kind.PIECE, f"{where}: admitted again, {text}")


# --- (2) to (4) -------------------------------------------------------------------------------------------------


class HopsAudit(LedgerAudit[HopPiece]):
    """What one broker handed on: routed again where its keys are here, and what came to its subscribers."""

    def __init__(self, report: CheckReport, realm: Realm, topic: str, node: str, openers: OpenerOf) -> None:
        self._realm, self._topic, self._node, self._state = realm, topic, node, realm.state()
        self._step = step_of(realm, topic, node)
        #: Whether its keys are here, and whether everything was routed again so far.
        self._here = self.complete = realm.paths.broker_key_of(node).exists()
        key = self._step.journal_key if self._here else None
        paths, about = realm.paths.topic(topic, node).hops, self._state.topic(topic)
        by = journal_signer(self._state, about, node, HOPS_PART)
        journal = realm.journal(topic, node, "hops")
        super().__init__(report, about, paths, journal, hops.parse, key, by, f"broker {node!r}: ")
        self._opener_of = openers
        self._order = DeliveryOrder()
        self._numbers: dict[str, int] = {}
        self._seen: list[PieceRef] = []

    def available(self) -> Sequence[int]:
        return available(self._realm, self._topic, self._node)

    def newest(self) -> int | None:
        return self._step.version() if self._here else None

    def wait(self, waiting: int) -> None:
        self.report.count("waiting_records", waiting)

    def slots(self) -> Mapping[str, int]:
        return dict.fromkeys(self._state.entities, 0)

    def judge(self, piece: HopPiece | None, ref: PieceRef, version: int, where: str, later: Resealed | None) -> None:
        if piece is None:
            return
        if piece.node != self._node:
            self.add(Kind.PIECE, f"{where}: {ref.name} is a piece of {piece.node!r}")
        self.report.deliveries += piece.counts.get("deliveries", 0)
        if self._here and (later is None or later.removal is None):
            self._route_again(ref, version, where)
        self._follow(piece, where)
        self._seen.append(ref)

    def _route_again(self, ref: PieceRef, version: int, where: str) -> None:
        try:
            made = self._step.hop(version, ref.partition, ref.first, ref.end)
        except Corrupt as error:
            self.add(Kind.PIECE, error.message)
        except (NotFound, CannotOpen) as error:
            self.complete = False
            self.report.gap(f"some of what {self._node!r} handed on is too old to be routed again: {error.message}")
        else:
            if _same(made, ref):
                return
            if self._removed_above(ref):
                self.report.gap(f"some of what {self._node!r} took from above was removed there, and not routed again")
            elif self._keys_forgotten(ref):
                self.report.gap(f"some of what {self._node!r} handed on is of epochs whose keys were destroyed")
            else:
                text = f"records {ref.first} to {ref.end - 1} above it give something else than {ref.name} has"
                self.add(Kind.PIECE, f"{where}: routed again, {text}")

    def _removed_above(self, ref: PieceRef) -> bool:
        """Whether events were taken out of the records that a piece was made from: refusals of these are missing."""
        records = (self._step.upstream(ref.partition).record(index) for index in range(ref.first, ref.end))
        return any(each.resealed is not None and each.resealed.removal is not None for each in records)

    def _keys_forgotten(self, ref: PieceRef) -> bool:
        """Whether the events that a piece was made from are of epochs whose keys brokers destroyed: what is routed
        again without them is refused."""
        kept = self._state.topic(self._topic).forgotten_before
        above = self._step.upstream(ref.partition).pieces(ref.first, ref.end)
        return any(frame.parse_signed(each.signed).header.epoch < kept for piece in above for each in piece.frames)

    def _follow(self, piece: HopPiece, where: str) -> None:
        here: dict[Line, set[tuple[int, int]]] = {}
        for name, row in self._arriving(piece):
            event = piece.event_of(row)
            line, pair = self._place(piece, name, event)
            of_line = here.setdefault(line, set())
            who, number = (np.array([each], np.int64) for each in pair)
            late = self._order.take(line, who, number, partial(self._before, line, of_line))
            of_line.add(pair)
            got = f"{where}: {name!r} has event {piece.position(event)}"
            if late.duplicated:
                self.add(Kind.DUPLICATED, f"{got} twice")
            if late.out_of_order:
                self.add(Kind.OUT_OF_ORDER, f"{got} after a later one of its publisher")
            opener = self._opener_of(name)
            if opener is not None:
                self._open(piece, row, name, opener)

    def _arriving(self, piece: HopPiece) -> Iterator[tuple[str, int]]:
        return ((name, row) for name in piece.recipients for row in arriving(self._state, piece, name))

    def _place(self, piece: HopPiece, name: str, event: int) -> tuple[Line, tuple[int, int]]:
        header = frame.parse_signed(piece.frame(event).signed).header
        _, row, generation = piece.place(event)
        number = header.sequence + MESSAGES_PER_EVENT * row
        return (header.boot, generation), (self._numbers.setdefault(name, len(self._numbers)), number)

    def _before(self, line: Line, here: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """What pieces before this one delivered of a line, and this one so far."""
        earlier = (
            self._place(piece, name, piece.event_of(row))
            for piece in map(self.read, self._seen)
            for name, row in self._arriving(piece)
        )
        return here | {pair for of, pair in earlier if of == line}

    def _open(self, piece: HopPiece, row: int, name: str, opener: EventOpener) -> None:
        try:
            opener.open(piece, row)
        except KeyMissing as error:
            self.report.gap(error.message)
        except CannotOpen as error:
            position = piece.position(piece.event_of(row))
            self.add(Kind.KEYS, f"event {position} does not open for {name!r}: {error.message}")


# --- what others here ask for, too ------------------------------------------------------------------------------


def step_of(realm: BrokerRealm, topic: str, node: str) -> HopStep:
    """The hops of one broker, as `run` does them. Its keys are opened when they are needed."""
    return HopStep.of(StepName(str(realm.paths.root), topic, node, HOPS))


def available(realm: BrokerRealm, topic: str, node: str) -> list[int]:
    """How many records there are above a broker, by partition of its offset."""
    step = step_of(realm, topic, node)
    above, names = realm.state().overlay(topic).parents[node] or node, step.upstreams()
    return [step.reader(name).end() for name in (names if above in names else (*names, above))]


def arriving(state: RealmState, piece: HopPiece, name: str, skip: int = 0) -> Sequence[int]:
    """The rows of a piece that are for somebody's mailbox, but for its first so many. What is for a broker may only be
    on its way through it."""
    rows = piece.rows_for(name)[skip:]
    if name in state.entities and Role.BROKER not in state.entities[name].roles:
        return rows
    return [row for row in rows if any(entry.final for entry in parse_entries(piece.entries_of(row)))]


def opener_of(realm: Realm, state: RealmState, topic: str, name: str) -> EventOpener | None:
    """What opens a subscriber's events, where its keys are at hand."""
    if name not in state.entities or not key_file(realm, state, name).exists():
        return None
    try:
        identity = own_identity(realm, state, name)
    except SealcastError:
        return None  # under another lock: as good as elsewhere
    return opener_for(realm, topic, Participant(realm, topic, identity))


def _same(piece: HopPiece, ref: PieceRef) -> bool:
    return hashlib.sha256(hops.encode(piece)).digest() == ref.digest
