"""The services of a realm whose keys are here, in one process, a turn each: what `sealcast serve` runs.

Discovery nodes come first, because the others advertise themselves with them. Every service keeps its own memory on
stable storage, so that this process can be killed at any moment and started again: requests that were taken in and not
answered are answered then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sealcast.control.center.rules import MoreRules, nothing_more
from sealcast.control.center.service import FOUND_BY, KeyCenter, center_here
from sealcast.control.desk import MoreOf, desk_here
from sealcast.control.discovery import embedded
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.node import DiscoveryNode
from sealcast.control.discovery.restrictions import Restrictions
from sealcast.control.service import Service, ServiceTurn
from sealcast.errors import NotFound
from sealcast.log.closing import Closing
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.certificates.certificate import Role
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity

_ORDER: Final = {What.DISCOVERY: Role.DISCOVERY, What.KEY_CENTER: Role.KEY_CENTER, What.BROKER: Role.BROKER}


@dataclass(slots=True)
class RunningService:
    """One service, and what it did so far."""

    what: What
    name: str
    service: Service
    center: KeyCenter | None = None
    node: DiscoveryNode | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def turn(self, now_us: int) -> ServiceTurn:
        turn = self.service.serve_once(now_us)
        self.counts.update(turn.counts)
        if self.service.wants_to_move(now_us):
            self.service.move(now_us)
            self.counts["moved"] += 1
        return turn


class Running(Closing, Unpicklable):
    """Services of one realm, as long as they run."""

    def __init__(
        self,
        realm: OpenRealm,
        names: Iterable[str] | None = None,
        *,
        found_by: Restrictions = FOUND_BY,
        more: MoreOf | None = None,
        center_more: MoreRules = nothing_more,
    ) -> None:
        """All whose keys are here, or those named. `found_by` says who may find key centers; `more` are kinds of
        request that a broker of that name answers besides, `center_more` those of key centers."""
        self._realm, self._found_by, self._more, self._center_more = realm, found_by, more, center_more
        wanted = None if names is None else list(names)
        self.services = [served for what in _ORDER for served in self._of(what, wanted)]
        known = {served.name for served in self.services}
        missing = next((name for name in wanted or () if name not in known), None)
        if missing is not None or not self.services:
            self.close()
            raise NotFound(
                f"no service {missing!r} can run here" if missing else "no service can run here",
                hint="key centers, brokers and discovery nodes run where their keys are: see secrets/ in the realm",
            )

    def start(self) -> None:
        """All listen, and can be found."""
        for served in self.services:
            served.service.start(self._realm.clock())
        for served in self.services:
            # Also where it has listened before: it may have been run a turn at a time until now, unadvertised. Where
            # discovery nodes listen, the realm's mark says.
            if served.node is None:
                served.service.announce(self._realm.clock())
            elif served.node.empty:
                # New, or its store was lost: the other nodes have what it should have.
                embedded.heal(self._realm, served.name, served.node)

    def turn(self) -> int:
        """One turn each; how many posts were taken."""
        return sum(served.turn(self._realm.clock()).taken for served in self.services)

    def drain(self) -> None:
        """Turns until nothing is queued."""
        while self.turn():
            pass

    def rotate_due(self, messages: Mapping[str, int]) -> dict[str, str]:
        """Does what is due by the topics' own limits, and lets centers forget past epochs that nobody needs; the topics
        that were rotated, with the reason."""
        now, due = self._realm.clock(), dict[str, str]()
        for served in self.services:
            if served.center is not None:
                due |= served.center.rotate_due(now, messages)
                served.center.forget(now)
        return due

    def sweep(self) -> int:
        """Removes what askers who are gone have left; how many topics."""
        plane = self._realm.site.control()
        try:
            return plane.sweep()
        finally:
            plane.close()

    def close(self) -> None:
        while self.services:
            self.services.pop().service.close()

    # --- inside -------------------------------------------------------------------------------------

    def _of(self, what: What, names: list[str] | None) -> list[RunningService]:
        holders = (who.name for who in self._realm.state().holders(_ORDER[what]))
        return [
            made
            for name in holders
            if (names is None or name in names) and (made := self._open(what, name)) is not None
        ]

    def _open(self, what: What, name: str) -> RunningService | None:
        if what is What.KEY_CENTER:
            made = center_here(self._realm, name, self._found_by, self._center_more)
            return None if made is None else RunningService(what, name, *made)
        if what is What.BROKER:
            desk = desk_here(self._realm, name, self._more, advertised=True)
            return None if desk is None else RunningService(what, name, desk)
        path = self._realm.paths.discovery_key(name)
        if not path.exists():
            return None
        service, node = embedded.node_service(self._realm, Identity.load(path, name))
        return RunningService(what, name, service, node=node)
