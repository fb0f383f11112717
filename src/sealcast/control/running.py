"""The services of a realm whose keys are here, in one process, a turn each: what `sealcast serve` runs.

Discovery nodes come first, because the others advertise themselves with them. Every service keeps its own memory on
stable storage, so that this process can be killed at any moment and started again: requests that were taken in and not
answered are answered then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

from sealcast.control.center.service import FOUND_BY, KeyCenter, center_service
from sealcast.control.desk import More, desk_service
from sealcast.control.discovery import embedded
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.restrictions import EVERYONE, Restrictions
from sealcast.control.service import Service, Turn
from sealcast.control.serving import RealmWriter
from sealcast.control.topics import ControlPlane
from sealcast.errors import NotFound
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.certificates.certificate import Role
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.identity import Identity

_ORDER: Final = {What.DISCOVERY: Role.DISCOVERY, What.KEY_CENTER: Role.KEY_CENTER, What.BROKER: Role.BROKER}


class _Closes(Protocol):
    def close(self) -> None: ...


@dataclass(slots=True)
class Served:
    """One service, and what it did so far."""

    what: What
    name: str
    service: Service
    #: Has it found again by whoever may; None for a node, which the realm's mark lists.
    advertise: Callable[[], object] | None = None
    center: KeyCenter | None = None
    parts: tuple[_Closes, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)

    def turn(self, now_us: int) -> Turn:
        turn = self.service.serve_once(now_us)
        self.counts.update(turn.counts)
        if self.service.wants_to_move(now_us):
            self.service.move(now_us)
            self.counts["moved"] += 1
        return turn


class Running(Unpicklable):
    """Services of one realm, as long as they run."""

    def __init__(
        self,
        realm: RealmWriter,
        names: Iterable[str] | None = None,
        *,
        found_by: Restrictions = FOUND_BY,
        more: Callable[[str], More] | None = None,
    ) -> None:
        """All whose keys are here, or those named. `found_by` says who may find key centers; `more` are kinds of
        request that a broker of that name answers besides."""
        self._realm, self._found_by, self._more = realm, found_by, more
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
            # Also where it has listened before: it may have been run a turn at a time until now, unadvertised.
            if served.advertise is not None:
                served.advertise()

    def turn(self) -> int:
        """One turn each; how many posts were taken."""
        return sum(served.turn(self._realm.clock()).taken for served in self.services)

    def drain(self) -> None:
        """Turns until nothing is queued."""
        while self.turn():
            pass

    def rotate_due(self, messages: Mapping[str, int]) -> dict[str, str]:
        """What is due by the topics' own limits; the topics that were rotated, with the reason."""
        now, due = self._realm.clock(), dict[str, str]()
        for served in self.services:
            if served.center is not None:
                due |= served.center.rotate_due(now, messages)
        return due

    def sweep(self) -> int:
        """Removes what askers who are gone have left; how many topics."""
        with ControlPlane(self._realm.paths.root) as plane:
            return plane.sweep()

    def close(self) -> None:
        while self.services:
            served = self.services.pop()
            served.service.close()
            for part in served.parts:
                part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # --- inside -------------------------------------------------------------------------------------

    def _of(self, what: What, names: list[str] | None) -> list[Served]:
        holders = (who.name for who in self._realm.state().holders(_ORDER[what]))
        return [
            made
            for name in holders
            if (names is None or name in names) and (made := self._open(what, name)) is not None
        ]

    def _open(self, what: What, name: str) -> Served | None:
        paths = self._realm.paths
        if what is What.DISCOVERY and paths.discovery_key(name).exists():
            service, node = embedded.node_service(self._realm, Identity.load(paths.discovery_key(name), name))
            return Served(what, name, service, parts=(node,))
        if what is What.KEY_CENTER and paths.center_key(name).exists():
            secrets = CenterSecrets.load(paths.center_key(name))
            service, center = center_service(self._realm, secrets, restrictions=self._found_by)
            tell = self._advertise(what, secrets.identity, service, self._found_by)
            return Served(what, name, service, tell, center, (center,))
        if what is What.BROKER and paths.broker_key_of(name).exists():
            broker = BrokerSecrets.load(paths.broker_key_of(name))
            more = None if self._more is None else self._more(name)
            service, _ = desk_service(self._realm, broker, more=more)
            return Served(what, name, service, self._advertise(what, broker.identity, service, EVERYONE))
        return None

    def _advertise(
        self, what: What, identity: Identity, service: Service, found_by: Restrictions
    ) -> Callable[[], object]:
        return lambda: embedded.advertise_service(self._realm, what, identity, service.topic, restrictions=found_by)
