"""What a peer says of itself on one topic: counted for who runs it, told where it matters, and signed in its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from sealcast.errors import FrameRejected, Rejected
from sealcast.log.closing import Closing
from sealcast.log.peer_log import PeerLogWriter
from sealcast.overlay.peers.port import Closed, Linked, Missed, Weakened
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.incoming import Arrivals
from sealcast.trust.keys.identity import Identity
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.peer_logs import NO_EVENT, EntryKind, PeerEntry


class PeerJournal(Closing, Unpicklable):
    """The log of one peer on one topic, and its counts. Close it after a last `flush`."""

    def __init__(
        self, directory: Path, topic: tuple[str, bytes], identity: Identity, told: Callable[[str], None]
    ) -> None:
        self._name, (self._topic, id), self._told = identity.name, topic, told
        self._log = PeerLogWriter(directory, id, identity.name, identity.signer)
        self.counts = Counter[str]()
        #: Parents of several places of one subscription, which were told of.
        self._shared = set[str]()

    def flush(self, time_us: int) -> None:
        """Signs what was done since the last time."""
        self._log.flush(time_us)

    def close(self) -> None:
        self._log.close()

    # --- events -------------------------------------------------------------------------------------

    def arrived(self, sender: str, event: bytes, *, taken: bool) -> None:
        self.counts["received" if taken else "refused"] += 1
        why = "" if taken else "it did not pass the checks"
        self._log.add(PeerEntry(EntryKind.RECEIVED if taken else EntryKind.REFUSED, _named(event), sender, why))

    def passed_on(self, to: str, event: bytes, *, room: bool) -> None:
        self.counts["forwarded" if room else "dropped"] += 1
        kind = EntryKind.FORWARDED if room else EntryKind.MISSED
        self._log.add(PeerEntry(kind, _named(event), to, "" if room else "its queue is full"))

    def published(self, named: bytes, rendezvous: str) -> None:
        self._log.add(PeerEntry(EntryKind.PUBLISHED, named, rendezvous))

    def handed_over(self, counted: Mapping[str, int]) -> None:
        self.counts.update(counted)
        if counted.get("given up"):
            self._told(f"{self._name}: {counted['given up']} events on {self._topic!r} are too old for anybody to take")

    def opened(self, found: Arrivals) -> None:
        self.counts["deliveries"] += len(found.events)
        for event in found.events:
            self._log.add(PeerEntry(EntryKind.DELIVERED, event.id))
        for rejection in found.rejected:
            self.counts["refused"] += 1
            self._log.add(PeerEntry(EntryKind.REFUSED, NO_EVENT, "", f"{rejection.position}: {rejection.detail}"))

    # --- links --------------------------------------------------------------------------------------

    def missed(self, effect: Missed) -> None:
        count, seconds = effect.events, effect.seconds
        self.counts["missed"] += count
        said = f"{self._name} missed up to {count} events on {self._topic!r}"
        said += f", and does not know what came in {seconds:.0f} s before" if seconds else ""
        self._told(said)
        detail = f"{effect.attribute}: {count} events, {seconds:.0f} s"
        self._log.add(PeerEntry(EntryKind.MISSED, NO_EVENT, "", detail))

    def linked(self, effect: Linked) -> None:
        kind = EntryKind.UNLINKED if effect.parent is None else EntryKind.LINKED
        parent = "" if effect.parent is None else effect.parent.peer
        self._log.add(PeerEntry(kind, NO_EVENT, parent, str(effect.seat)))

    def cut_off(self, effect: Closed) -> None:
        self.counts["cut off"] += 1
        self._log.add(PeerEntry(EntryKind.CUT_OFF, NO_EVENT, effect.peer, effect.reason))

    def weakened(self, effect: Weakened) -> None:
        """Says it once of each parent, however many places are below it."""
        if effect.parent not in self._shared:
            self._shared.add(effect.parent)
            said = f"two places or more of one subscription are below {effect.parent}, since no other was found"
            self._told(f"{self._name}/{self._topic}: {said}")


def _named(event: bytes) -> bytes:
    """How logs name an event, so that whoever reads its publisher's log finds it."""
    try:
        return CarriedEvent.from_bytes(event).id
    except (FrameRejected, Rejected):
        return NO_EVENT
