"""A member of a consumer group: which deliveries of a shared mailbox are its own, and what it acknowledges of them.

The group's state is where all members reach it (`log.groups`): in the realm, or at the gateway. A member reads the
whole mailbox and opens its own shares. A share falls to a member with a place: what comes before it was acknowledged
by others, what follows was not, and is handed out here. That place is believed because the reader's own key signed it.

    owned      the share's events are handed out here
    giving     others wait for it: nothing more of it is handed out, and it is given back when all is acknowledged
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from sealcast.errors import Corrupt, FrameRejected, Misuse, NotFound, SealcastError, Unavailable
from sealcast.log import groups
from sealcast.log.cursor import Cursor
from sealcast.log.group_file import GroupFiles
from sealcast.log.group_statement import LABEL, SHARES, GroupName, GroupStatement, ShareMark, StayPlace, digest, parse
from sealcast.log.groups import ConsumerGroup, ShareLost, ShareState, SignedAck
from sealcast.log.had import EventId, Had
from sealcast.log.mailbox import Part
from sealcast.primitives.sign import SigningKey, VerifyKey
from sealcast.protections.stays import FoundPart, Place, StayKey, Stays, stay_key
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.topics import Stay
from sealcast.wire import frame

#: How often a member tells that it is there, in seconds; and one that has nothing to do.
TURN_S: Final = 1.0
IDLE_TURN_S: Final = 0.2
#: How often a member moves shares on that had nothing for it.
QUIET_S: Final = 5.0
_NO_EVENTS: Final = b"[]"


@dataclass(slots=True)
class _Share:
    """A share that this member owns."""

    fence: int
    seq: int
    #: How far it was acknowledged, and how far it was handed out.
    place: dict[StayKey, Cursor]
    read: dict[StayKey, Cursor]
    #: What was had of it, with what was handed out; and what of that is not acknowledged yet.
    had: Had
    new: Had = field(default_factory=Had)
    giving: bool = False


def group_of(realm: EntityRealm, topic: str, reader: str, name: str) -> ConsumerGroup:
    """Where a group's state is. A reader that is its own peer has its mail on its own machine, and its groups there."""
    if not re.fullmatch(groups.NAME, name):
        raise Misuse(f"{name!r} cannot name a group: letters, digits, dot, dash and underscore, at most 64")
    if realm.state().topic(topic).protection.peers:
        return GroupFiles(realm.paths.topic(topic).groups).of(reader, name)
    return realm.site.of(reader).group(topic, reader, name)


@lru_cache(maxsize=1 << 16)
def share_of(publisher: str) -> int:
    """The share that a publisher's events are in: the same in every release, or groups would hand out twice."""
    return int.from_bytes(sha256(publisher.encode()).digest()[:8], "big") % SHARES


class GroupMember:
    """One process that shares a reader's mailbox with others."""

    def __init__(
        self, realm: EntityRealm, topic: str, reader: str, name: str, mail: Stays[Any], signer: SigningKey, *, new: bool
    ) -> None:
        """A group that does not exist begins where `mail` reads on; with `new` it must not exist."""
        self._mail, self._signer, self.name = mail, signer, name
        state = realm.state()
        self._about = GroupName(realm.id, state.topic(topic).id, reader, name)
        self._verify = VerifyKey(state.entity(reader).verify_key)
        self._group = group_of(realm, topic, reader, name)
        self._member = secrets.token_hex(8)
        self._label = f"{socket.gethostname()[:64]}:{os.getpid()}"
        self._shares: dict[int, _Share] = {}
        #: The newest acknowledgement that was seen of each share.
        self._seen: dict[int, int] = {}
        #: An acknowledgement of which nobody knows whether it was taken, and the shares that it moves.
        self._unsure: tuple[SignedAck, Sequence[int]] | None = None
        self._next_turn = self._next_quiet = float("-inf")
        self.members = 0
        self._start_had = Had() if new else mail.had()
        if new and not self._begin():
            raise Misuse(
                f"group {name!r} of {reader!r} exists, and goes on where it is: --from is for new groups",
                hint="leave --from away, or name another group",
            )

    # --- taking part --------------------------------------------------------------------------------

    def turn(self) -> None:
        """Tells that it is there, if it is time to, and takes and gives back shares."""
        self._make_sure()
        now = time.monotonic()
        if now < self._next_turn:
            return
        done = [n for n, share in self._shares.items() if share.giving and not share.new]
        self._settle_quiet(now, done)
        known = {number: share.fence for number, share in self._shares.items() if number not in done}
        try:
            turn = self._group.turn(self._member, self._label, known, done)
        except NotFound:
            self._begin()
            turn = self._group.turn(self._member, self._label, {}, ())
        lost = [n for n, share in self._shares.items() if turn.mine.get(n) != share.fence]
        for number in lost:
            del self._shares[number]
        for state in turn.new:
            self._shares[state.number] = self._taken(state)
        for number in turn.give:
            self._shares[number].giving = True
        if turn.new:
            self._rewind()
        self.members = turn.members
        self._next_turn = now + (TURN_S if self._shares and not turn.give else IDLE_TURN_S)
        self._carry(turn.low)

    def close(self) -> None:
        """Leaves: what was not acknowledged goes to others at once."""
        try:
            if self._shares:
                self._group.leave(self._member)
        finally:
            self._shares.clear()
            self._group.close()

    # --- which deliveries are its own -----------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether it has something to read."""
        return any(not share.giving for share in self._shares.values())

    def own(self, found: FoundPart[Any]) -> FoundPart[Any]:
        """Those deliveries of a part that are handed out here."""
        key, part = stay_key(found.stay), found.part
        rows = [row for row, number in enumerate(_shares_of(part)) if self._has(number, key, part.place(row))]
        return found.only(rows)

    def passed(self, stay: Stay, place: Cursor) -> None:
        """What is before a place was handed out, as far as it is this member's."""
        key = stay_key(stay)
        for share in self._shares.values():
            if not share.giving and place > share.read.get(key, Cursor(stay.first)):
                share.read[key] = place

    def admit(self, first: EventId, numbers: Sequence[int], *, late: bool) -> list[bool]:
        """Which events of one publisher are handed out: those that were not before."""
        share = self._shares[share_of(first.publisher)]
        fresh = share.had.admit(first, numbers, late=late)
        share.new.add_all(first, [number for number, is_fresh in zip(numbers, fresh, strict=True) if is_fresh])
        return fresh

    # --- acknowledging ------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Everything that was handed out so far is done with. ShareLost when some of it is not this member's any more:
        the rest is acknowledged all the same."""
        lost = self._acknowledge(self._shares)
        if lost:
            raise ShareLost(lost)

    def _acknowledge(self, numbers: Iterable[int]) -> list[int]:
        """Acknowledges these shares, as far as they are still its own; those that are not."""
        lost = self._make_sure()
        while moved := [n for n in numbers if n in self._shares and self._moved(self._shares[n])]:
            events, marks = Had(), list[ShareMark]()
            had = {n: _written(self._shares[n].had) for n in moved}
            for number in moved:
                share = self._shares[number]
                events.take(share.new)
                marks.append(ShareMark(number, share.seq + 1, digest(had[number]), self._written_place(share.read)))
            fences = {n: self._shares[n].fence for n in moved}
            found = self._send(self._signed(marks, _written(events), had, fences), moved)
            lost += found
            for number in found:
                self._shares.pop(number, None)
            if not found:
                break
        return lost

    def _send(self, ack: SignedAck, moved: Sequence[int]) -> Sequence[int]:
        """Has an acknowledgement taken; the shares that are not its own any more, because of which it was not."""
        self._unsure = ack, moved
        try:
            self._group.acknowledge(self._member, ack)
        except ShareLost as error:
            self._unsure = None
            return error.numbers
        except Unavailable:
            raise  # it may have been taken, and the answer was lost
        except SealcastError:
            self._unsure = None
            raise
        self._unsure = None
        for number in moved:
            share = self._shares[number]
            share.seq, share.new, share.place = share.seq + 1, Had(), dict(share.read)
            self._seen[number] = share.seq
        self._next_turn = min(self._next_turn, time.monotonic() + IDLE_TURN_S)
        return ()

    def _make_sure(self) -> list[int]:
        """Sends an acknowledgement again that was not answered: one that was taken already is not taken twice. Nothing
        is handed out before. Returns the shares that were lost meanwhile."""
        if self._unsure is None:
            return []
        ack, moved = self._unsure
        lost = self._send(ack, moved)
        if lost:
            # Whether the others were moved, nobody said. At the next turn they come as new, with their places.
            for number in moved:
                self._shares.pop(number, None)
            self._next_turn = float("-inf")
        return list(lost)

    @staticmethod
    def _moved(share: _Share) -> bool:
        return bool(share.new) or share.read != share.place

    def _settle_quiet(self, now: float, done: Sequence[int]) -> None:
        """Moves shares on that nothing is outstanding of, so that whoever takes one over need not read it all again."""
        if now >= self._next_quiet:
            self._next_quiet = now + QUIET_S
            self._acknowledge([n for n, share in self._shares.items() if not share.new and n not in done])

    def _signed(
        self, marks: Sequence[ShareMark], events: bytes, had: dict[int, bytes], fences: dict[int, int]
    ) -> SignedAck:
        statement = GroupStatement(self._about, self._member, digest(events), tuple(marks))
        return SignedAck(statement.encode(), self._signer.sign(statement.signed()), events, had, fences)

    # --- inside -------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Makes the group, unless there is one: it begins where the mailbox is read on."""
        place, had = self._written_place(self._mail.places()), _written(self._start_had)
        marks = [ShareMark(number, 0, digest(had), place) for number in range(SHARES)]
        return self._group.begin(self._signed(marks, _NO_EVENTS, dict.fromkeys(range(SHARES), had), {}))

    def _taken(self, state: ShareState) -> _Share:
        """A share that fell to this member, held to what the reader's key signed."""
        try:
            statement = parse(state.statement)
            mark, had = statement.share(state.number), Had.from_json(json.loads(state.had))
        except (FrameRejected, ValueError, TypeError):
            raise self._forged("is not what a member writes") from None
        if statement.about != self._about or mark.had != digest(state.had):
            raise self._forged("is about something else")
        if not self._verify.verify(LABEL + state.statement, state.signature):
            raise self._forged("is not signed by its reader")
        if mark.seq < self._seen.get(state.number, 0):
            raise self._forged("is older than what this member saw")
        self._seen[state.number] = mark.seq
        place = dict[StayKey, Cursor]()
        for broker, first, cursor, tag in mark.place:
            self._mail.mailbox(broker).hold_to(cursor, tag, f"group {self.name!r}")
            place[broker, first] = cursor
        return _Share(state.fence, mark.seq, place, dict(place), had)

    def _forged(self, why: str) -> Corrupt:
        return Corrupt(
            f"the state of group {self.name!r} {why}", hint="ask whoever keeps it: the realm's administrator"
        )

    def _has(self, number: int, key: StayKey, place: Cursor) -> bool:
        share = self._shares.get(number)
        return share is not None and not share.giving and place >= share.read.get(key, Cursor())

    def _rewind(self) -> None:
        """Reads on where the share is that is furthest behind."""
        places = [share.read for share in self._shares.values() if not share.giving]
        keys = set.intersection(*(set(each) for each in places)) if places else set()
        self._mail.resume({key: min(each[key] for each in places) for key in keys})

    def _carry(self, low: Sequence[tuple[str, int, Cursor]]) -> None:
        """The reader's own cursor follows the share that is furthest behind: `status` and brokers go by it."""
        place: Place = {(broker, first): cursor for broker, first, cursor in low}
        if any(cursor > self._mail.mailbox(broker).saved() for (broker, _), cursor in place.items()):
            self._mail.acknowledge(place)

    def _written_place(self, place: Place) -> tuple[StayPlace, ...]:
        return tuple(
            StayPlace(broker, first, cursor, self._mail.mailbox(broker).tag_before(cursor))
            for (broker, first), cursor in sorted(place.items())
        )


def _shares_of(part: Part[Any]) -> list[int]:
    """The share of each delivery of a part. What has no header that can be read is nobody's in particular."""
    known = dict[int, int]()
    frames = part.piece.frame_index
    return [_share_of_frame(part, event, int(frames[event]), known) for event in part.events]


def _share_of_frame(part: Part[Any], event: int, number: int, known: dict[int, int]) -> int:
    if number not in known:
        try:
            known[number] = share_of(frame.parse_signed(part.piece.frame(event).signed).header.publisher)
        except FrameRejected:
            known[number] = 0
    return known[number]


def _written(had: Had) -> bytes:
    return json.dumps(had.to_json(), separators=(",", ":")).encode()
