"""Rendezvous compare what came to them, so that it does not matter below which of them a seat stands.

Publishers give every event to every rendezvous. One that began later, was down or was cut off lacks some for a while:
it gets them from its publishers, if they are there, and from the others in any case. Every pulse it asks each of the
others for the ids of what came since it last asked, and fetches what it lacks.

    AskNews(after)  ──>  other      News(after, ids)  <──  other      Fetch(some ids)  ──>  other      Carry  <──  other

Arrivals have numbers, so that nothing is listed twice. Links keep their order: when the next answer comes, what the
last one named has come. So a rendezvous knows up to when it has whatever any other had (`behind`). Its pulses say so,
and who leaves its tree for another's asks there for everything since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sealcast.overlay.peers.core import PeerCore, milliseconds
from sealcast.overlay.peers.port import PeerId
from sealcast.wire import limits
from sealcast.wire.peers import AskNews, Carry, Fetch, News, PeerMessage

#: Ids in one answer, and so events that are fetched together: a queue has room for them.
NEWS_EACH: Final = 256
#: Longer ago than this, nobody says when.
LONGEST_SECONDS: Final = limits.MAX_PEER_MILLISECONDS / 1000


@dataclass(slots=True)
class ComparedRoot:
    """Another rendezvous, and what of its events is here."""

    #: When it last had nothing that was not here.
    level: float
    #: What it is asked with next, and the last number before which everything is here.
    after: int = 0
    sure: int = 0
    #: When the question was asked that it has not answered; and the one before, if its answer named events to fetch.
    asked: float | None = None
    fetched: float | None = None
    #: It has let nothing go that was to be listed.
    whole: bool = True


class Comparing:
    """What a rendezvous does with the others; nothing, at a peer that is none."""

    def __init__(self, core: PeerCore) -> None:
        self._core = core
        self._others: dict[PeerId, ComparedRoot] = {}
        self._begun = False

    def begin(self, away: float | None) -> None:
        """This peer runs roots from now on, and heard nothing for so many seconds before; None: it never did."""
        if not self._begun:
            self._begun = True
            self._meet(float("-inf") if away is None else self._core.now - away)
        self.ask()

    def meet(self) -> None:
        """Goes by the rendezvous of now. One that is new has had nothing yet that the others did not have."""
        if self._begun and self._core.has_roots:
            self._meet(min((each.level for each in self._others.values()), default=self._core.now))
            self.ask()

    def _meet(self, level: float) -> None:
        core = self._core
        names = [name for name in core.rendezvous if name != core.name]
        self._others = {name: self._others.get(name) or ComparedRoot(level) for name in names}

    def behind(self, now: float) -> float:
        """For how many seconds another rendezvous may have had events that are not here."""
        return min(now - min((each.level for each in self._others.values()), default=now), LONGEST_SECONDS)

    # --- asking ---------------------------------------------------------------------------------

    def ask(self) -> None:
        """Asks everybody who does not owe an answer since a moment ago."""
        patience = self._core.settings.search_seconds
        for name, other in self._others.items():
            if other.asked is None or self._core.now - other.asked >= patience:
                if other.asked is not None:
                    self._again(other)
                self._ask(name, other)

    def _ask(self, name: PeerId, other: ComparedRoot) -> None:
        other.asked = self._core.now
        self._core.send(name, None, None, AskNews(other.after))

    def down(self, peer: PeerId) -> None:
        """The link is gone, and what was on its way may be lost."""
        other = self._others.get(peer)
        if other is not None:
            self._again(other)

    def _again(self, other: ComparedRoot) -> None:
        other.after, other.asked, other.fetched = other.sure, None, None

    def on_news(self, sender: PeerId, message: PeerMessage, body: News) -> None:
        core, other = self._core, self._others.get(sender)
        if other is None or other.asked is None or not core.has_roots:
            core.counts["news that nobody asked for"] += 1
            return
        asked, other.asked = other.asked, None
        wanted = tuple(dict.fromkeys(id for id in body.events if not core.recent.seen(id)))
        if wanted:
            core.counts["news"] += len(wanted)
            core.send(sender, None, None, Fetch(wanted))
        # What the answer before named is here by now; if this one names nothing new, so is everything else.
        other.sure, other.after = body.after if not wanted else other.after, body.after
        other.whole = other.whole and not body.lost
        settled = asked if not wanted else other.fetched
        if len(body.events) >= NEWS_EACH:
            other.fetched = None
            self._ask(sender, other)
            return
        if settled is not None:
            other.level = max(other.level, settled)
            if other.whole:
                self._reach(core.now - body.reach / 1000)
        other.fetched = asked if wanted else None

    def _reach(self, since: float) -> None:
        """Whatever the other has seen, these roots have seen by now."""
        for seat in self._core.seats.values():
            if seat.plan.root and seat.complete_since is not None:
                seat.complete_since = min(seat.complete_since, since)

    # --- answering ------------------------------------------------------------------------------

    def on_ask(self, sender: PeerId, message: PeerMessage, body: AskNews) -> None:
        """Whoever runs roots, by the registry, gets every event from publishers, too: others get no answer."""
        core = self._core
        if not core.is_fellow(sender):
            core.counts["asked by no rendezvous"] += 1
            return
        events, after, lost = core.recent.after(body.after, NEWS_EACH)
        begun = [seat.complete_since for seat in core.seats.values() if seat.plan.root]
        since = max((each for each in begun if each is not None), default=core.now)
        core.send(sender, None, None, News(after, tuple(events), milliseconds(core.now - since), lost))

    def on_fetch(self, sender: PeerId, body: Fetch) -> None:
        core = self._core
        if not core.is_fellow(sender):
            core.counts["asked by no rendezvous"] += 1
            return
        for id in body.events[:NEWS_EACH]:
            event = core.recent.get(id)
            if event is not None:
                core.send(sender, None, None, Carry(event))
