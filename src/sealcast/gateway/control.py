"""Control topics over a gateway: requests to key centers, desks and discovery nodes, and the answers to them.

Who makes a topic through a gateway is written down beside it: nobody else reads or drops it, also after the gateway was
started again. Where topics are in the registry's database, it is so at every gateway of the realm. Entities make topics
for answers only; whoever serves others makes those that it listens on. Posting needs nothing but the topic's 128 bits,
as everywhere: what is posted is sealed and signed, and judged by whom it is for. Posts are stamped with who posted
them, so that a service charges its budgets to the right one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sealcast.control.discovery import bootstrap
from sealcast.control.discovery.bootstrap import NodeAddress
from sealcast.errors import NotFound
from sealcast.gateway import access
from sealcast.gateway.asked import ApiCall, CborAnswer, NoAnswer
from sealcast.gateway.callers import Caller
from sealcast.gateway.problems import Refusal, forbidden
from sealcast.log.closing import Closing
from sealcast.log.control_topics import MAX_ORIGIN_BYTES, ControlPlane
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import OpenRealm
from sealcast.trust.shared_control import KeptPlane, SharedPlane

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

#: How often a post that is waited for is looked for in a database.
_FIRST_LOOK_S: Final = 0.02
_LAST_LOOK_S: Final = 0.25
#: Callers whose handles are kept open.
_OPEN: Final = 256


class ControlTopics(Closing):
    """The control topics of a realm, as callers use them. For many threads."""

    def __init__(self, realm: OpenRealm, most: int) -> None:
        """`most` topics may one caller have made at a time."""
        self._local, self._most = realm.site.local, most
        self._guard = threading.Lock()
        self._planes: OrderedDict[str, tuple[KeptPlane, threading.Lock]] = OrderedDict()
        #: Where topics are directories, once one was asked for.
        self._root: Path | None = None
        #: By maker, of topics in a directory, which this gateway alone makes topics in.
        self._made: Counter[str] | None = None

    @contextmanager
    def plane(self, caller: Caller) -> Iterator[KeptPlane]:
        """The caller's own: what it has in queues is counted by it."""
        with self._guard:
            if caller.name not in self._planes:
                origin = f"entity {caller.name}"[:MAX_ORIGIN_BYTES]
                made = self._local.control(origin)
                self._root = made.root if isinstance(made, ControlPlane) else None
                self._planes[caller.name] = made, threading.Lock()
            self._planes.move_to_end(caller.name)
            plane, lock = self._planes[caller.name]
            while len(self._planes) > _OPEN:
                _, (oldest, busy) = self._planes.popitem(last=False)
                with busy:
                    oldest.close()
        with lock:
            yield plane

    def directory(self, topic: bytes) -> Path | None:
        """The directory of a topic that somebody asked for; None where it is in a database."""
        return None if self._root is None else self._root / topic.hex()

    def create(self, caller: Caller, topic: bytes, *, reply: bool) -> None:
        with self.plane(caller) as plane:
            maker = plane.maker(topic)
            if maker is None and plane.exists(topic):
                raise forbidden("this control topic was not made here")
            if maker not in (None, caller.name):
                raise forbidden("this control topic is another's")
            if maker is None:
                self._count_one(plane, caller)
            plane.create(topic, reply=reply, maker=caller.name)

    def drop(self, caller: Caller, topic: bytes) -> None:
        with self.plane(caller) as plane:
            self.own(plane, caller, topic)
            plane.drop(topic)
            with self._guard:
                if self._made is not None:
                    self._made[caller.name] -= 1

    def own(self, plane: KeptPlane, caller: Caller, topic: bytes) -> None:
        """NotFound when there is none, and Refusal when it is another's."""
        if not plane.exists(topic):
            raise NotFound("there is no such control topic", hint="it has moved, or was never here: find it again")
        if plane.maker(topic) != caller.name:
            raise forbidden("who made a control topic reads it, and nobody else")

    def close(self) -> None:
        with self._guard:
            while self._planes:
                self._planes.popitem()[1][0].close()

    def _count_one(self, plane: KeptPlane, caller: Caller) -> None:
        """One topic more of a caller's; Refusal when it has too many."""
        with self._guard:
            if isinstance(plane, SharedPlane):
                has = plane.made_by(caller.name)
            else:
                if self._made is None:
                    self._made = plane.makers()  # counted once, in case an earlier run left some
                has = self._made[caller.name]
                self._made[caller.name] += has < self._most
        if has >= self._most:
            raise Refusal(429, "busy", f"a caller has at most {self._most} control topics", hint="drop some")


# --- endpoints ----------------------------------------------------------------------------------------


async def create(hub: Hub, asked: ApiCall) -> NoAnswer:
    """Makes a control topic, to be read by its maker alone."""
    access.be_realms(home=hub.home)
    reply = asked.number("reply") == 1
    if not reply and not asked.caller.serves:
        raise forbidden("entities make control topics for answers only", hint="add ?reply=1")
    topic = _id(asked)
    await hub.workers.run(lambda: hub.control.create(asked.caller, topic, reply=reply))
    return NoAnswer()


async def post(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Queues an envelope for whoever listens."""
    access.be_realms(home=hub.home)
    topic, data, reply = _id(asked), asked.body["data"], asked.number("reply") == 1

    def work() -> int:
        with hub.control.plane(asked.caller) as plane:
            if reply and not plane.awaits_reply(topic):
                raise NotFound("nobody waits for an answer there")
            return plane.post(topic, data)

    return CborAnswer({"offset": await hub.workers.run(work)})


async def read(hub: Hub, asked: ApiCall) -> CborAnswer:
    """What was posted, from an offset on."""
    access.be_realms(home=hub.home)
    topic, first, most = _id(asked), asked.number("from"), asked.number("max_bytes")

    def judge() -> None:
        with hub.control.plane(asked.caller) as plane:
            hub.control.own(plane, asked.caller, topic)

    def work() -> dict[str, object]:
        with hub.control.plane(asked.caller) as plane:
            hub.control.own(plane, asked.caller, topic)
            if first > plane.taken(topic) and not plane.awaits_reply(topic):
                plane.take(topic, min(first, plane.end(topic)))  # a service has handled what is before
            found, end = plane.read(topic, first, max_bytes=most), plane.end(topic)
        return {"records": [[p.offset, p.time_us, p.origin, p.data] for p in found], "end": end}

    await hub.workers.run(judge)
    await _until_beyond(hub, asked, topic, first)
    hub.again(asked)
    return CborAnswer(await hub.workers.run(work))


async def _until_beyond(hub: Hub, asked: ApiCall, topic: bytes, first: int) -> None:
    """Waits for a post at `first`, as long as the caller asked to."""
    directory = hub.control.directory(topic)
    if directory is None:
        await asked.wait(_look(hub, asked.caller, topic, first))
        return
    try:
        await asked.wait(hub.feeds.of(directory).beyond(first))
    finally:
        if not directory.is_dir():
            hub.feeds.drop(directory)


async def _look(hub: Hub, caller: Caller, topic: bytes, first: int) -> None:
    """Looks again and again whether something was posted at `first`, less often with time."""

    def end() -> int:
        with hub.control.plane(caller) as plane:
            return plane.end(topic)

    pause = _FIRST_LOOK_S
    while await hub.workers.run(end) <= first:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LAST_LOOK_S)


async def drop(hub: Hub, asked: ApiCall) -> NoAnswer:
    """Ends a control topic; what is queued is thrown away."""
    access.be_realms(home=hub.home)
    topic = _id(asked)
    await hub.workers.run(lambda: hub.control.drop(asked.caller, topic))
    if (directory := hub.control.directory(topic)) is not None:
        hub.feeds.drop(directory)
    return NoAnswer()


async def listens(hub: Hub, asked: ApiCall) -> NoAnswer:
    """Lists a discovery node with the control topic that it listens on."""
    access.be_realms(home=hub.home)
    access.be(asked.caller, asked.path["name"], "where a discovery node listens")
    if Role.DISCOVERY not in asked.caller.roles:
        raise forbidden("this is for discovery nodes")
    name, topic = asked.caller.name, asked.body["topic"]
    certificate = hub.newest.seen.state.entity(name).certificate

    def work() -> None:
        with hub.control.plane(asked.caller) as plane:
            hub.control.own(plane, asked.caller, topic)
        if not hub.realm.site.local.listens(name, topic):
            bootstrap.write(hub.realm.paths.mark, [NodeAddress(name, topic, certificate)])

    await hub.workers.run(work)
    return NoAnswer()


def _id(asked: ApiCall) -> bytes:
    return bytes.fromhex(asked.path["id"])
