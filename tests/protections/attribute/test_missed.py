"""A peer that was away for longer than its parent keeps events: it gets what is kept, and says what it missed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from sealcast import Realm
from sealcast.model.protection import protection_of
from sealcast.protections.attribute import testimony
from sealcast.protections.attribute.audit import PeersAudit
from sealcast.protections.attribute.peering.host import PeerHost
from sealcast.protections.witness.report import Kind
from sealcast.trust.handles import EntityRealm
from sealcast.wire.peer_logs import EntryKind
from tests.overlay.links import until
from tests.protections.attribute.test_peer_processes import SCHEMA, TOPIC
from tests.protections.attribute.test_peering import LIMITS, SETTINGS, inbox, publish

#: A parent that keeps four events for whoever is away.
FORGETFUL = replace(SETTINGS, kept_events=4)


@asynccontextmanager
async def process(realm: Realm, name: str, said: list[str]) -> AsyncIterator[PeerHost]:
    """A process of one peer: it talks TLS to the other, and has nothing in common with it but the registry."""
    host = PeerHost(EntityRealm(realm.paths.root), [name], limits=LIMITS, settings=FORGETFUL, told=said.append)
    done = asyncio.Event()
    running = asyncio.ensure_future(host.run(done.is_set))
    try:
        yield host
    finally:
        done.set()
        await asyncio.wait_for(running, 60)


def test_what_a_parent_let_go_is_said_and_the_rest_arrives(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["pub", "any"])
    realm.create_topic(TOPIC, SCHEMA, protection=protection_of("attribute"), access="members")
    realm.subscribe(TOPIC, "any", "heat >= 0")
    publish(realm, 1)
    said = list[str]()

    async def scene() -> None:
        async with process(realm, "pub", []) as host:
            async with process(realm, "any", []):
                await until(lambda: inbox(realm, "any") == [1], within=120)
            publish(realm, *range(2, 12))
            sent = realm.clock()
            await until(lambda: all(m.publisher and not m.publisher.waiting() for m in host.members()), within=120)
            async with process(realm, "any", said) as back:
                await until(lambda: inbox(realm, "any") == [1, 8, 9, 10, 11], within=120)
                await until(lambda: any(member.journal.counts["missed"] for member in back.members()), within=120)
                publish(realm, 12)
                await until(lambda: inbox(realm, "any") == [1, 8, 9, 10, 11, 12], within=120)
                # Until it says so, what it lacks may still be on its way.
                await until(lambda: (testimony.heard_until_us(realm, TOPIC, "any") or 0) > sent, within=120)

    asyncio.run(scene())
    numbers = [
        int(found[1]) for each in said if (found := re.match(r"any missed up to (\d+) events on 'vitals'", each))
    ]
    assert sum(numbers) >= 6, "at least those that it lacks, and more where nobody can tell whether it had them"
    entries = [entry for entry in testimony.said_by(realm, TOPIC, "any") if entry.kind is EntryKind.MISSED]
    assert len(entries) == len(numbers) and all("events" in entry.detail for entry in entries)
    # It is not hidden from `check` either: these are lost to it
    found = PeersAudit(realm, TOPIC).run(lambda done: None)
    assert found.found[Kind.LOST] == len(found.problems) == 6, found.problems
