"""One process of peers: its identities and their links, the topics that each takes part in, the registry, and time.

    identity (certificate, door, links)  ──>  one `PeerMember` for each topic that peers carry
    registry, four times a second        ──>  who may be linked to: who is revoked is cut off
              once a second, if it moved ──>  who runs the roots, places, keys of a new epoch
    once a minute                        ──>  frames and inboxes: what is kept no longer is removed (`upkeep`)

By default a process hosts every entity whose keys are here and that has a filter or a log on such a topic. Who begins
to publish or subscribe later joins by itself. One process at a time runs an entity's peer.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Final

from sealcast.errors import Locked, NotFound, Rejected, SealcastError, Unavailable
from sealcast.overlay.peers.net.doors import PeerListener
from sealcast.overlay.peers.net.frames import BOOT_BYTES
from sealcast.overlay.peers.net.limits import DEFAULT_LIMITS, LinkLimits
from sealcast.overlay.peers.net.tls import PeerTrust, TlsIdentity
from sealcast.overlay.peers.net.transport import Transport
from sealcast.overlay.peers.port import PeerSettings
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.carry import publishers_here, subscribers_here, topics_here
from sealcast.protections.attribute.peering import status
from sealcast.protections.attribute.peering.addresses import AddressBook
from sealcast.protections.attribute.peering.hosted import HostedIdentity, RunsAlone
from sealcast.protections.attribute.peering.hosting import DEFAULT_SETTINGS, ListenAt
from sealcast.protections.attribute.peering.member import PeerMember
from sealcast.protections.attribute.peering.rendezvous import rendezvous_of
from sealcast.protections.attribute.upkeep import PeerUpkeep
from sealcast.trust.handles import EntityRealm
from sealcast.trust.realm.state import RealmState

#: How often the registry is followed: so soon a revoked peer is cut off.
#: What is counted of events, for a metrics page.
COUNTED: Final = ("published", "received", "forwarded", "deliveries", "refused", "missed", "dropped")
FOLLOW_S: Final = 0.25
#: How often, in turns, a registry that moved is gone by: fifty processes that start together change it fifty times.
LOOK_EACH: Final = 4
#: How often, in turns, it is asked what the registry does not say: certificates that ended, a first log, a new filter.
IDLE_EACH: Final = 8
#: Where all peers are in this process, nothing is on its way any more when nothing has happened for so long.
NEAR_S: Final = 0.5
#: How often, in turns, a process shows how it stands.
SHOW_EACH: Final = 4
#: How often peers remove what their topics keep no longer.
TIDY_S: Final = 60.0


class PeerHost(Unpicklable):
    """A process of peers, from `run` to its end."""

    def __init__(
        self,
        realm: EntityRealm,
        names: Iterable[str] | None = None,
        at: ListenAt | None = None,
        *,
        rendezvous: bool = True,
        limits: LinkLimits = DEFAULT_LIMITS,
        settings: PeerSettings = DEFAULT_SETTINGS,
        told: Callable[[str], None] = lambda text: None,
    ) -> None:
        """The named entities, or all that take part and whose keys are here. With `rendezvous`, those of them that
        publish offer to run the roots of trees."""
        self._realm, self._at, self._serves = realm, at or ListenAt(), rendezvous
        self._limits, self._settings = limits, settings
        self._names = None if names is None else list(dict.fromkeys(names))
        self._told = told
        self._state = realm.state()
        for name in self._names or ():
            self._state.entity(name)
        self._boot, self._port = os.urandom(BOOT_BYTES), 0
        self._trust = PeerTrust(self._state, realm.trust(self._state), realm.clock)
        self._listener = PeerListener(self._trust, limits)
        self._near: dict[str, Transport] = {}
        self._hosted: dict[str, HostedIdentity] = {}
        self._addresses = AddressBook(realm, self._state, self._trust)
        #: Peers that have left a topic and are not closed yet.
        self._retiring: dict[tuple[str, bytes], asyncio.Future[None]] = {}
        self._locks = ExitStack()
        self._said = dict[str, str]()
        self._looking: asyncio.Future[None]
        self._upkeep = PeerUpkeep(realm)
        self._tidying: asyncio.Future[None] | None = None
        #: What happened so far, over all peers.
        self.counts = Counter[str]()

    # --- running ------------------------------------------------------------------------------------

    async def run(self, stop: Callable[[], bool], *, once: float | None = None) -> Counter[str]:
        """Hosts peers until `stop` says so; with `once`, until nothing has happened for so many seconds."""
        self._port = self._listener.open(self._at.host, self._at.port)
        looked, turn, began = -1, 0, asyncio.get_running_loop().time()
        tidied = began
        self._looking = asyncio.get_running_loop().create_future()
        self._looking.set_result(None)
        try:
            while not stop():
                self._follow()
                due = turn % IDLE_EACH == 0 or (turn % LOOK_EACH == 0 and looked != self._state.version)
                if self._looking.done():
                    self._looking.result()
                    if due:
                        looked = self._state.version
                        self._looking = asyncio.ensure_future(self._look())
                for identity in self._hosted.values():
                    identity.check()
                turn += 1
                if turn % SHOW_EACH == 1:
                    self._show()
                if once is not None and self._quiet(began, once):
                    await asyncio.to_thread(self._tidy)
                    break
                if (now := asyncio.get_running_loop().time()) - tidied >= TIDY_S and not self._is_tidying:
                    tidied, self._tidying = now, asyncio.ensure_future(asyncio.to_thread(self._tidy))
                await asyncio.sleep(FOLLOW_S)
            return self._total()
        finally:
            await self._close()

    def _follow(self) -> None:
        """Goes by the newest registry in whom it believes; who was revoked is cut off at once."""
        if self._realm.registry.version() != self._state.version:
            before = self._state
            self._take(self._realm.state())
            if _revocations(before) != _revocations(self._state):
                self._recheck()

    def _take(self, state: RealmState) -> None:
        self._state = self._addresses.state = state
        self._trust.update(state, self._realm.trust(state))
        for member in self.members():
            member.follow(state)

    def _recheck(self) -> None:
        for identity in self._hosted.values():
            for gone in identity.transport.recheck():
                self.counts["cut off"] += 1
                self._told(f"{identity.name}: {gone} does not count any more, and was cut off")

    async def _look(self) -> None:
        """Goes by the newest registry in everything else: who takes part, where others are, keys and places. Whoever is
        asked for something may take a while, and links go on meanwhile."""
        self._recheck()
        for identity in self._hosted.values():
            self._renew(identity)
        for name in self._taking_part():
            if name not in self._hosted and not self._state.entity(name).revoked:
                self._host(name)
        await self._announce()
        for topic in topics_here(self._state):
            for identity in self._hosted.values():
                chosen = rendezvous_of(self._state, topic, self._realm.clock())
                if chosen:
                    await self._join(identity, topic, chosen)
        self._show()

    @property
    def _is_tidying(self) -> bool:
        return self._tidying is not None and not self._tidying.done()

    def _tidy(self) -> None:
        """Removes what is kept no longer, beside everything else."""
        for topic in topics_here(self._state):
            for name in list(self._hosted):
                about = f"upkeep of {name}/{topic}"
                try:
                    removed = self._upkeep.once(topic, name)
                except SealcastError as error:
                    self._say(about, error)
                else:
                    self._said.pop(about, None)
                    if any(removed):
                        self._told(
                            f"{name}/{topic}: {removed.frames} frames and {removed.events} sealed events removed, "
                            "which the topic keeps no longer"
                        )

    def _taking_part(self) -> Sequence[str]:
        if self._names is not None:
            return self._names
        found = dict[str, None]()
        for topic in topics_here(self._state):
            found |= dict.fromkeys(publishers_here(self._realm, self._state, topic))
            found |= dict.fromkeys(subscribers_here(self._realm, self._state, topic))
        return list(found)

    # --- identities ---------------------------------------------------------------------------------

    def _host(self, name: str) -> None:
        self._locks.enter_context(RunsAlone(self._realm.paths.broker(name)))
        identity = self._tls(name)
        hosted = HostedIdentity(name, self._addresses.own(name, self._at.dialled, self._port), self.counts)
        hosted.transport = Transport(
            identity, self._trust, self._limits, self._boot, self._addresses.find, hosted, self._near
        )
        self._hosted[name] = hosted
        self._listener.serve(hosted.address.door, identity, hosted.transport.arrived)

    def _tls(self, name: str) -> TlsIdentity:
        return TlsIdentity(self._realm.identity(name), self._state.entity(name).certificate, self._trust.trust)

    def _renew(self, identity: HostedIdentity) -> None:
        """Shows the newest certificate from now on."""
        if identity.transport.identity.certificate.der != self._state.entity(identity.name).certificate:
            identity.transport.identity = self._tls(identity.name)
            self._listener.serve(identity.address.door, identity.transport.identity, identity.transport.arrived)

    async def _announce(self) -> None:
        """Says where its identities are reached, as far as the registry does not know."""
        wanted = {name: (identity.address, self._offers(name)) for name, identity in self._hosted.items()}
        if await asyncio.to_thread(self._addresses.announce, wanted):
            self._take(self._realm.state())

    def _offers(self, name: str) -> bool:
        """Whether an entity runs roots: it publishes on some topic."""
        if not self._serves:
            return False
        return any(self._realm.paths.topic(t, name).frames_root.is_dir() for t in topics_here(self._state))

    # --- topics -------------------------------------------------------------------------------------

    async def _join(self, identity: HostedIdentity, topic: str, rendezvous: Sequence[str]) -> None:
        about, name = self._state.topic(topic), identity.name
        member = identity.members.get(about.id)
        try:
            if not self._state.rights_of(topic, name, self._realm.clock()):
                self._leave(identity, about.id)
                return
            if member is None:
                if (name, about.id) in self._retiring:
                    return
                member = PeerMember(self._realm, topic, name, rendezvous, identity, self._settings, self._told)
                identity.start(about.id, member)
            await member.look(self._state, rendezvous)
            self._said.pop(f"{name}/{topic}", None)
        except (Unavailable, Rejected, NotFound) as error:
            if isinstance(error, Locked):
                raise
            self._say(f"{name}/{topic}", error)

    def _leave(self, identity: HostedIdentity, topic: bytes) -> None:
        member = identity.members.pop(topic, None)
        if member is not None:
            member.leave()
            for task in identity.tasks.pop(topic):
                task.cancel()
            self._retiring[identity.name, topic] = asyncio.ensure_future(self._retire(identity.name, topic, member))

    async def _retire(self, name: str, topic: bytes, member: PeerMember) -> None:
        await member.beside.settle()
        member.close()
        del self._retiring[name, topic]

    def _say(self, about: str, error: SealcastError) -> None:
        """Each trouble once, while it lasts."""
        if self._said.get(about) != error.message:
            self._said[about] = error.message
            self._told(f"{about}: {error.message}")

    # --- what others see ----------------------------------------------------------------------------

    def members(self) -> list[PeerMember]:
        return [member for identity in self._hosted.values() for member in identity.members.values()]

    def _show(self) -> None:
        for identity in self._hosted.values():
            status.write(self._realm, identity.name, identity.address, identity.transport, identity.members.values())

    def _quiet(self, began: float, seconds: float) -> bool:
        found, now = self.members(), asyncio.get_running_loop().time()
        last = max([began, *(member.active for member in found)])
        if all(name in self._hosted for name in self._state.peers if not self._state.entity(name).revoked):
            seconds = min(seconds, NEAR_S)
        return self._looking.done() and all(member.idle for member in found) and now - last >= seconds

    def counted(self) -> dict[tuple[str, ...], int]:
        """What became of events so far, by topic and outcome; also asked from another thread."""
        found = Counter[tuple[str, ...]]()
        for member in self.members():
            counts = dict(member.journal.counts)
            found.update({(member.topic, outcome): counts.get(outcome, 0) for outcome in COUNTED})
        return dict(found)

    def _total(self) -> Counter[str]:
        total = Counter(self.counts)
        for member in self.members():
            total.update(member.journal.counts)
        total["peers"] = len(self.members())
        return total

    async def _close(self) -> None:
        await asyncio.wait([self._looking, *([] if self._tidying is None else [self._tidying])])
        for identity in self._hosted.values():
            await identity.stop()
        await asyncio.gather(*self._retiring.values())
        for identity in self._hosted.values():
            await identity.transport.close()
            for member in identity.members.values():
                member.note()
                member.close()
            status.remove(self._realm, identity.name)
        await self._listener.close()
        self._locks.close()


def _revocations(state: RealmState) -> tuple[object, ...]:
    """What changes when somebody counts no more."""
    return state.revoked.number, sum(each.revoked for each in state.entities.values()), state.founding
