"""Heartbeats: the root's pulse goes down each tree, link by link, and children answer it.

One mechanism finds a parent that died, a parent that is cut off itself, and a circle: in all three no newer pulse
comes. Each level waits a little longer than the one above it, so that after a crash the seats next to it move, and what
is below them moves with them.

A pulse also says what a seat has. Links keep their order, so that what was passed down before a pulse has arrived when
the pulse has. The root says since when it may lack what other rendezvous have, and each seat on the way since when it
waits for something itself. So a seat below a root that was cut off knows from when on it may lack something, and asks
its next parent for it.
"""

from __future__ import annotations

from typing import Final

from sealcast.overlay.peers.comparing import LONGEST_SECONDS, Comparing
from sealcast.overlay.peers.core import PeerCore, milliseconds
from sealcast.overlay.peers.port import SeatAddress
from sealcast.overlay.peers.searching import Searching
from sealcast.overlay.peers.seat import Heartbeat, Seat
from sealcast.wire import limits
from sealcast.wire.peers import Alive, PartingReason, Pulse, Unlink

#: A root gives extra pulses for seats that search with a tree below them, but not more often than this.
LEAST_SECONDS: Final = 0.2
#: What comes faster is not passed on: a parent cannot make the tree below it busy with pulses.
FASTEST_SECONDS: Final = 0.05


class Pulses:
    """The heartbeats of a node: given, if it runs roots, and passed on."""

    def __init__(self, core: PeerCore, searching: Searching, comparing: Comparing) -> None:
        self._core = core
        self._searching = searching
        self._comparing = comparing
        #: Another name after each start: numbers begin anew with it.
        self._root = f"{core.name[:128]}/{core.rng.randbytes(8).hex()}"
        self._number = 0
        self._last = float("-inf")

    # --- at a rendezvous ------------------------------------------------------------------------

    def beat(self) -> None:
        """The next pulse of all roots here."""
        core = self._core
        roots = [seat for seat in core.seats.values() if seat.plan.root]
        if not roots:
            return
        self._number += 1
        self._last = core.now
        behind = self._comparing.behind(core.now)
        for seat in roots:
            seat.pulse = Heartbeat(self._root, self._number, 0, core.now, behind)
            seat.last_complete = core.now - behind
            self._pass_down(seat)
        core.timers.set(("pulse", 0), core.now + core.settings.pulse_seconds)

    def newer(self, seat: Seat, heard: tuple[tuple[str, int], ...]) -> bool:
        """Whether the seat is certainly not below a seat that has passed down the pulses `heard`."""
        pulse = seat.pulse
        if pulse is None:
            return False
        passed = dict(heard).get(pulse.root, -1)
        if pulse.number > passed:
            return True
        if seat.plan.root and self._core.now >= self._last + LEAST_SECONDS:
            self.beat()  # Links keep their order: the children have the new pulse when the search reaches them.
        return seat.plan.root

    # --- at everybody ---------------------------------------------------------------------------

    def on_pulse(self, seat: Seat, parent: SeatAddress, body: Pulse) -> None:
        core = self._core
        fresh = seat.pending is not None and seat.pending.parent == parent
        if fresh:
            self._searching.linked(seat)
        elif seat.parent != parent:
            core.reply(seat, parent, Unlink(PartingReason.UNKNOWN))
            return
        core.reply(seat, parent, Alive())
        old = seat.pulse
        if not fresh and old is not None:
            stale = old.root == body.root and body.number <= old.number
            if stale or core.now < old.at + FASTEST_SECONDS:
                return
        depth = min(body.depth + 1, limits.MAX_PEER_DEPTH)
        behind = body.behind / 1000
        if seat.caught_up:
            before = seat.complete_since if seat.last_complete is None else seat.last_complete
            seat.last_complete = core.now - behind if before is None else max(core.now - behind, before)
        else:
            own = LONGEST_SECONDS if seat.last_complete is None else core.now - seat.last_complete
            behind = max(behind, own)
        seat.pulse = Heartbeat(body.root, body.number, depth, core.now, behind)
        core.timers.set(("silent", seat.number), core.now + self._patience(depth))
        self._pass_down(seat)

    def on_alive(self, seat: Seat, child: SeatAddress, body: Alive) -> None:
        link = seat.children.get(child)
        if link is None:
            self._core.reply(seat, child, Unlink(PartingReason.UNKNOWN))
        else:
            link.heard = self._core.now

    def pass_to(self, seat: Seat, child: SeatAddress) -> None:
        """Gives a new child the newest pulse: from then on it is linked."""
        if seat.pulse is not None:
            self._note(seat, seat.pulse)
            self._core.reply(seat, child, _body(seat.pulse))

    def _pass_down(self, seat: Seat) -> None:
        core, pulse = self._core, seat.pulse
        if pulse is None or not seat.children:
            return
        self._note(seat, pulse)
        silent = core.now - core.settings.silent_seconds
        for child in [address for address, link in seat.children.items() if link.heard < silent]:
            del seat.children[child]
            core.reply(seat, child, Unlink(PartingReason.SILENT))
        body = _body(pulse)
        for child in seat.children:
            core.reply(seat, child, body)

    def _note(self, seat: Seat, pulse: Heartbeat) -> None:
        seat.heard[pulse.root] = max(pulse.number, seat.heard.get(pulse.root, -1))
        seat.heard.move_to_end(pulse.root)
        if len(seat.heard) > limits.MAX_PEER_ROOTS:
            seat.heard.popitem(last=False)

    def _patience(self, depth: int) -> float:
        settings = self._core.settings
        return settings.silent_seconds + (depth - 1) * settings.silent_step_seconds


def _body(pulse: Heartbeat) -> Pulse:
    return Pulse(pulse.root, pulse.number, pulse.depth, milliseconds(pulse.behind))
