"""A consumer group whose state a gateway keeps: the same calls, over HTTPS.

What is said of shares is believed by the reader's own signature (`clients.group`), not by the gateway's word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sealcast.log.cursor import Cursor
from sealcast.log.groups import MemberTurn, ShareLost, ShareState, SignedAck
from sealcast.transports.https import Connection, path_of
from sealcast.transports.problems import strange

PART: Final = "groups"


class RemoteGroup:
    """One group of one reader."""

    def __init__(self, connection: Connection, topic: str, name: str) -> None:
        self._connection, self._path = connection, path_of("topics", topic, PART, name)

    def begin(self, first: SignedAck) -> bool:
        match self._connection.send("PUT", self._path, _body(first)):
            case {"made": bool(made)}:
                return made
            case _:
                raise strange()

    def turn(self, member: str, about: str, known: Mapping[int, int], done: Sequence[int]) -> MemberTurn:
        body = {"member": member, "about": about, "known": sorted(map(list, known.items())), "done": list(done)}
        match self._connection.send("POST", f"{self._path}/turns", body):
            case {"mine": list(mine), "new": list(new), "give": list(give), "low": list(low), "members": int(members)}:
                return _turn(mine, new, give, low, members)
            case _:
                raise strange()

    def acknowledge(self, member: str, ack: SignedAck) -> None:
        match self._connection.send("POST", f"{self._path}/acks", {"member": member, **_body(ack)}):
            case {"lost": list(lost)} if all(isinstance(each, int) for each in lost):
                if lost:
                    raise ShareLost(lost)
            case _:
                raise strange()

    def leave(self, member: str) -> None:
        self._connection.send("DELETE", f"{self._path}/members/{member}", patience_s=0.0)

    def close(self) -> None:
        """The connection is the site's."""


def _body(ack: SignedAck) -> dict[str, Any]:
    shares = [[number, ack.fences.get(number, 0), had] for number, had in sorted(ack.had.items())]
    return {"statement": ack.statement, "signature": ack.signature, "events": ack.events, "shares": shares}


def _turn(mine: list[Any], new: list[Any], give: list[Any], low: list[Any], members: int) -> MemberTurn:
    try:
        shares = [ShareState(int(n), int(fence), bytes(s), bytes(by), bytes(had)) for n, fence, s, by, had in new]
        places = [(str(broker), int(first), Cursor(*map(int, place))) for broker, first, *place in low]
        return MemberTurn({int(n): int(fence) for n, fence in mine}, shares, [int(n) for n in give], places, members)
    except (TypeError, ValueError):
        raise strange() from None
