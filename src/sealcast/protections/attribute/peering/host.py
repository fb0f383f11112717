"""One process of peers: its identities and their links, the topics that each takes part in, the registry, and time.

    identity (certificate, door, links)  ──>  one `PeerMember` for each topic that peers carry
    registry, looked at all the time     ──>  who may be linked to, who runs the roots, keys of a new epoch

By default a process hosts every entity whose keys are here and that has a filter or a log on such a topic. Who begins
to publish or subscribe later joins by itself. One process at a time runs an entity's peer.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from sealcast.errors import Locked, Misuse, NotFound, Rejected, SealcastError, Unavailable
from sealcast.log import files
from sealcast.overlay.peers.net.doors import PeerListener
from sealcast.overlay.peers.net.frames import BOOT_BYTES, LinkEnded, LinkReason
from sealcast.overlay.peers.net.limits import DEFAULT_LIMITS, LinkLimits
from sealcast.overlay.peers.net.tls import PeerTrust, TlsIdentity
from sealcast.overlay.peers.net.transport import Transport
from sealcast.overlay.peers.port import PeerSettings
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.attribute.carry import publishers_here, subscribers_here, topics_here
from sealcast.protections.attribute.peering import status
from sealcast.protections.attribute.peering.addresses import AddressBook
from sealcast.protections.attribute.peering.member import PeerMember
from sealcast.protections.attribute.peering.rendezvous import rendezvous_of
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.peer_addresses import PeerAddress
from sealcast.wire import peers

#: How often the registry is looked at: so soon a revoked peer is cut off.
LOOK_S: Final = 0.25
#: How often, in looks, it is asked what the registry does not say: certificates that ended, a first log, a new filter.
LOOK_EACH: Final = 8
#: How often, in looks, a process shows how it stands.
SHOW_EACH: Final = 4
#: What peers keep for those below them who were away: as much as the limits of an inventory let, for a day.
DEFAULT_SETTINGS: Final = PeerSettings(kept_seconds=86_400.0)
_ANY: Final = ("", "0.0.0.0", "::")


def with_heartbeat(seconds: float) -> tuple[LinkLimits, PeerSettings]:
    """Limits and settings whose times go with the heartbeat; 5 seconds give the defaults."""
    scale = seconds / DEFAULT_SETTINGS.pulse_seconds
    limits = replace(
        DEFAULT_LIMITS, heartbeat_s=scale * DEFAULT_LIMITS.heartbeat_s, silence_s=scale * DEFAULT_LIMITS.silence_s
    )
    settings = replace(
        DEFAULT_SETTINGS,
        pulse_seconds=seconds,
        silent_seconds=scale * DEFAULT_SETTINGS.silent_seconds,
        silent_step_seconds=scale * DEFAULT_SETTINGS.silent_step_seconds,
    )
    return limits, settings


@dataclass(frozen=True, slots=True)
class ListenAt:
    """Where a process listens, and what others dial."""

    host: str = "127.0.0.1"
    port: int = 0
    #: The host that is announced, where it is not the one that is listened on.
    announced: str | None = None

    def __post_init__(self) -> None:
        if self.announced is None and self.host in _ANY:
            raise Misuse(
                f"nobody can dial {self.host or 'an empty host'!r}",
                hint="say what others shall dial: --announce HOST, or listen on an address of your own",
            )

    @property
    def dialled(self) -> str:
        return self.host if self.announced is None else self.announced


@dataclass(slots=True, eq=False)
class HostedIdentity:
    """One entity in this process: its links, and its peers by topic."""

    host: PeerHost
    name: str
    address: PeerAddress
    transport: Transport = field(init=False)
    members: dict[bytes, PeerMember] = field(default_factory=dict)
    tasks: dict[bytes, list[asyncio.Task[None]]] = field(default_factory=dict)

    # --- PeerEvents ---------------------------------------------------------------------------------

    def on_up(self, peer: str) -> None:
        self.host.counts["links"] += 1

    def on_down(self, peer: str, reason: LinkReason) -> None:
        self.host.counts[f"down:{reason}"] += 1
        for member in self.members.values():
            member.down(peer)

    def on_missed(self, peer: str, count: int) -> None:
        """Messages from there are lost. Links are made anew, and what is missing is asked for."""
        self.host.counts["lost"] += count
        for member in self.members.values():
            member.down(peer)

    async def on_message(self, peer: str, message: bytes) -> None:
        found = peers.parse(message)  # FrameRejected: whoever sends this is cut off
        member = self.members.get(found.topic)
        if member is None:
            self.host.counts["of other topics"] += 1
        else:
            await member.receive(peer, found)

    # --- Wires --------------------------------------------------------------------------------------

    def send(self, peer: str, message: bytes) -> bool:
        return self.transport.send(peer, message)

    def cut(self, peer: str, reason: str) -> None:
        self.transport.cut(peer, LinkEnded(LinkReason.REFUSED, reason))


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
        #: What happened so far, over all peers.
        self.counts = Counter[str]()

    # --- running ------------------------------------------------------------------------------------

    async def run(self, stop: Callable[[], bool], *, once: float | None = None) -> Counter[str]:
        """Hosts peers until `stop` says so; with `once`, until nothing has happened for so many seconds."""
        self._port = self._listener.open(self._at.host, self._at.port)
        version, turn, began = -1, 0, asyncio.get_running_loop().time()
        try:
            while not stop():
                newest = self._realm.registry.version()
                if newest != version or turn % LOOK_EACH == 0:
                    version = newest
                    self._look()
                self._check()
                turn += 1
                if turn % SHOW_EACH == 1:
                    self._show()
                if once is not None and self._quiet(began, once):
                    break
                await asyncio.sleep(LOOK_S)
            return self._total()
        finally:
            await self._close()

    def _look(self) -> None:
        """Goes by the newest registry: who counts, who takes part, where others are."""
        before, self._state = self._state, self._realm.state()
        self._addresses.state = self._state
        if before.version != self._state.version:
            self._trust.update(self._state, self._realm.trust(self._state))
        for identity in self._hosted.values():
            for gone in identity.transport.recheck():
                self.counts["cut off"] += 1
                self._told(f"{identity.name}: {gone} does not count any more, and was cut off")
            self._renew(identity)
        for name in self._taking_part():
            if name not in self._hosted and not self._state.entity(name).revoked:
                self._host(name)
        self._announce()
        now = self._realm.clock()
        for topic in topics_here(self._state):
            chosen = rendezvous_of(self._state, topic, now)
            for identity in self._hosted.values():
                if chosen:
                    self._join(identity, topic, chosen)

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
        self._locks.enter_context(_alone(self._realm.paths.broker(name)))
        identity = self._tls(name)
        hosted = HostedIdentity(self, name, self._addresses.own(name, self._at.dialled, self._port))
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

    def _announce(self) -> None:
        """Says where its identities are reached, as far as the registry does not know."""
        wanted = {name: (identity.address, self._offers(name)) for name, identity in self._hosted.items()}
        if self._addresses.announce(wanted):
            self._state = self._addresses.state = self._realm.state()
            self._trust.update(self._state, self._realm.trust(self._state))

    def _offers(self, name: str) -> bool:
        """Whether an entity runs roots: it publishes on some topic."""
        if not self._serves:
            return False
        return any(self._realm.paths.topic(t, name).frames_root.is_dir() for t in topics_here(self._state))

    # --- topics -------------------------------------------------------------------------------------

    def _join(self, identity: HostedIdentity, topic: str, rendezvous: Sequence[str]) -> None:
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
                identity.members[about.id] = member
                work = (member.run(), member.publish(), member.beside.run())
                identity.tasks[about.id] = [asyncio.ensure_future(each) for each in work]
            member.look(self._state, rendezvous)
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

    def _check(self) -> None:
        """Raises what made a task of ours end, as none should."""
        for identity in self._hosted.values():
            if identity.transport.failed.done():
                identity.transport.failed.result()
            for task in chain(*identity.tasks.values()):
                if task.done() and not task.cancelled():
                    task.result()

    # --- what others see ----------------------------------------------------------------------------

    def members(self) -> list[PeerMember]:
        return [member for identity in self._hosted.values() for member in identity.members.values()]

    def _show(self) -> None:
        for identity in self._hosted.values():
            status.write(self._realm, identity.name, identity.address, identity.transport, identity.members.values())

    def _quiet(self, began: float, seconds: float) -> bool:
        found, now = self.members(), asyncio.get_running_loop().time()
        last = max([began, *(member.active for member in found)])
        return all(member.idle for member in found) and now - last >= seconds

    def _total(self) -> Counter[str]:
        total = Counter(self.counts)
        for member in self.members():
            total.update(member.counts)
        total["peers"] = len(self.members())
        return total

    async def _close(self) -> None:
        for identity in self._hosted.values():
            tasks = list(chain(*identity.tasks.values()))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for member in identity.members.values():
                await member.beside.settle()
                member.leave()
        await asyncio.gather(*self._retiring.values())
        for identity in self._hosted.values():
            await identity.transport.close()
            for member in identity.members.values():
                member.note()
                member.close()
            status.remove(self._realm, identity.name)
        await self._listener.close()
        self._locks.close()


class _alone(ExitStack):
    """While one process runs an entity's peer; Locked when another one does. The kernel lets go when it dies."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        files.make_directory(directory)
        path = directory / "peer.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT, files.FILE_MODE)
        self.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Locked(
                f"another process runs the peer of {directory.name!r}",
                hint="stop that one first, or name other entities with --as",
            ) from None
