"""`overlay show` of a topic without brokers: live peers, one that died, one that searches, and one that is on another
machine; as text, as JSON and drawn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from sealcast import Realm
from sealcast.model.protection import protection_of
from sealcast.protections.attribute.peering import status
from sealcast.protections.attribute.peering.host import PeerHost
from sealcast.trust.handles import EntityRealm
from tests.cli.shell import Result, sealcast
from tests.overlay.links import PATIENT, until
from tests.protections.attribute.test_peer_processes import SCHEMA, TOPIC
from tests.protections.attribute.test_peering import LIMITS, SETTINGS, hosted, inbox, publish

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "realm")
    made.enrol_many(["pub", "cold", "hot"])
    made.create_topic(TOPIC, SCHEMA, protection=protection_of("attribute"), access="members")
    made.subscribe(TOPIC, "cold", "heat < 4")
    made.subscribe(TOPIC, "hot", "heat >= 8")
    return made


def shown(realm: Realm, *options: object) -> Result:
    done = sealcast("overlay", "show", TOPIC, *options, "--realm", realm.paths.root)
    assert done.code == 0, done.err
    return done


def left_behind(realm: Realm) -> dict[str, Any]:
    """What processes say of their peers now."""
    paths = sorted((realm.paths.root / "brokers").glob("*/peer.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


def put_back(realm: Realm, said: Mapping[str, Any], *, age_us: int) -> None:
    """As if processes had said this so long ago."""
    for name, body in said.items():
        (realm.paths.broker(name) / "peer.json").write_text(json.dumps({**body, "time_us": realm.clock() - age_us}))


def drawn(path: Path) -> list[str]:
    """Every word of a picture, which is well-formed."""
    return ["".join(each.itertext()) for each in ElementTree.parse(path).iter(f"{SVG}text")]


def test_live_peers_and_those_that_are_gone_or_elsewhere(realm: Realm, tmp_path: Path) -> None:
    publish(realm, 13)
    picture, said = tmp_path / "trees.svg", dict[str, Any]()

    def placed() -> bool:
        """Whether both stand below `pub`; keeps what is said then. A busy machine may let heartbeats be late."""
        said.update(left_behind(realm))
        return _parents(realm) == {"cold": {"pub"}, "hot": {"pub"}}

    async def scene(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "hot") == [13])
        found = (await asyncio.to_thread(shown, realm, "--json", "--svg", picture)).document
        assert {each["entity"] for each in found["peers"]} == {"pub", "cold", "hot"} and found["svg"] == str(picture)
        assert all(each["live"] for each in found["peers"])
        words = drawn(picture)
        assert f"{TOPIC}: 3 live peers" in words and {"pub", "cold", "hot", "heat"} <= set(words)
        await until(placed)

    hosted(realm, ["pub", "cold", "hot"], scene)
    assert shown(realm, "--json").document == {"peers": [], "svg": None}, "whoever ends in good order leaves nothing"
    assert "no peer runs on this machine: sealcast peer run" in (shown(realm).out + shown(realm).err)

    # As it was while they ran
    put_back(realm, said, age_us=0)
    lines = shown(realm).out.splitlines()
    rows = {line.split()[0]: line.split()[3:] for line in lines if TOPIC in line}
    assert (rows["pub"][0], rows["hot"][0], rows["hot"][2]) == ("rendezvous", "live", "1/1")
    heat = lines[next(number for number, line in enumerate(lines) if line.startswith("heat")) :][:4]
    assert [line.strip(" │├└─").split() for line in heat[1:]] == [
        ["pub", "rendezvous"],
        ["cold", "peer"],
        ["hot", "peer"],
    ]

    # A process that died: it is shown as it last stood
    put_back(realm, said, age_us=2 * status.STALE_US)
    gone = shown(realm, "--svg", picture).out
    assert {line.split()[3] for line in gone.splitlines() if TOPIC in line} == {"gone"}
    assert "searches" not in gone and f"{TOPIC}: 0 live peers" in drawn(picture)

    # One whose parent runs on another machine
    for name in ("pub", "cold"):
        status.remove(realm, name)
    put_back(realm, {"hot": said["hot"]}, age_us=0)
    below = [line.strip(" │├└─").split() for line in shown(realm).out.splitlines()]
    at = below.index(["pub", "elsewhere"])
    assert below[at + 1] == ["hot", "peer"]


def test_a_peer_that_searches(realm: Realm) -> None:
    """Its rendezvous is known, and does not run."""
    publish(realm, 13)

    async def nothing(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "hot") == [13])

    hosted(realm, ["pub", "hot"], nothing)

    async def alone() -> None:
        done = asyncio.Event()
        host = PeerHost(EntityRealm(realm.paths.root), ["hot"], limits=LIMITS, settings=SETTINGS)
        running = asyncio.ensure_future(host.run(done.is_set))
        try:
            await until(lambda: running.done() or _parents(realm) == {"hot": {None}})
            text = await asyncio.to_thread(shown, realm)
            assert "searches for a place" in text.out and "0/1" in text.out
        finally:
            done.set()
            await asyncio.wait_for(running, PATIENT)

    asyncio.run(alone())


def _parents(realm: Realm) -> dict[str, set[str | None]]:
    return {
        each["entity"]: {seat["parent"] for seat in each["topics"][TOPIC]["seats"]}
        for each in status.all_here(realm)
        if TOPIC in each["topics"] and not each["topics"][TOPIC]["serves"]
    }
