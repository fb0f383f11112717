"""One entity in a process of peers: its links, and its peers by topic. One process at a time runs them."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from sealcast.errors import Locked
from sealcast.log import files
from sealcast.overlay.peers.net.frames import LinkEnded, LinkReason
from sealcast.overlay.peers.net.transport import Transport
from sealcast.protections.attribute.peering.member import PeerMember
from sealcast.trust.keys.peer_addresses import PeerAddress
from sealcast.wire import peers


@dataclass(slots=True, eq=False)
class HostedIdentity:
    """What happens on the links of one entity, and whom it is for."""

    name: str
    address: PeerAddress
    #: What happened so far, over all identities of the process.
    counts: Counter[str]
    transport: Transport = field(init=False)
    members: dict[bytes, PeerMember] = field(default_factory=dict)
    tasks: dict[bytes, list[asyncio.Task[None]]] = field(default_factory=dict)

    def start(self, topic: bytes, member: PeerMember) -> None:
        """Lets a member work, for as long as it is here."""
        self.members[topic] = member
        work = (member.run(), member.publish(), member.beside.run())
        self.tasks[topic] = [asyncio.ensure_future(each) for each in work]

    def check(self) -> None:
        """Raises what made a task of ours end, as none should."""
        if self.transport.failed.done():
            self.transport.failed.result()
        for task in chain(*self.tasks.values()):
            if task.done() and not task.cancelled():
                task.result()

    async def stop(self) -> None:
        """Ends the work of all members, and says good-bye."""
        tasks = list(chain(*self.tasks.values()))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in self.members.values():
            await member.beside.settle()
            member.leave()

    # --- PeerEvents ---------------------------------------------------------------------------------

    def on_up(self, peer: str) -> None:
        self.counts["links"] += 1

    def on_down(self, peer: str, reason: LinkReason) -> None:
        self.counts[f"down:{reason}"] += 1
        for member in self.members.values():
            member.down(peer)

    def on_missed(self, peer: str, count: int) -> None:
        """Messages from there are lost. Links are made anew, and what is missing is asked for."""
        self.counts["lost"] += count
        for member in self.members.values():
            member.down(peer)

    async def on_message(self, peer: str, message: bytes) -> None:
        found = peers.parse(message)  # FrameRejected: whoever sends this is cut off
        member = self.members.get(found.topic)
        if member is None:
            self.counts["of other topics"] += 1
        else:
            await member.receive(peer, found)

    # --- Wires --------------------------------------------------------------------------------------

    def send(self, peer: str, message: bytes) -> bool:
        return self.transport.send(peer, message)

    def cut(self, peer: str, reason: str) -> None:
        self.transport.cut(peer, LinkEnded(LinkReason.REFUSED, reason))


class RunsAlone(ExitStack):
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
