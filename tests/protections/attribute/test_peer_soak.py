"""Fifty real processes in two network namespaces: ten are killed at random, the cable between them is cut and mended.

Each side goes on by itself meanwhile, a parent covers its children at all times, and afterwards every subscriber has
every event that it wants, once, nobody moves any more, and `check` finds nothing. The namespaces have a pair of virtual
cards between them and nothing else, so nothing leaves the machine. Where namespaces cannot be made, the test says so
and is skipped.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.model.protection import protection_of
from sealcast.protections.attribute.audit import PeersAudit
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.peering import status
from sealcast.protections.attribute.peering.places import PeerPlaces
from tests.protections.attribute.nursery import Nursery, PeerProcess
from tests.protections.attribute.test_peer_processes import SCHEMA, TOPIC, until

WARDS = ("a1", "a2", "b1", "b2")
PUBLISHERS = ("pub-1", "pub-2", "pub-3")


@dataclass
class Cable:
    """Two namespaces, and the cable between them."""

    names: tuple[str, str]
    hosts: tuple[str, str] = ("10.213.7.1", "10.213.7.2")

    def set(self, *, plugged: bool) -> None:
        _ip("netns", "exec", self.names[0], "ip", "link", "set", "cable", "up" if plugged else "down")


@contextmanager
def cable() -> Iterator[Cable]:
    made = Cable((f"sealcast-{os.getpid()}-a", f"sealcast-{os.getpid()}-b"))
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program `ip`")
    try:
        for name in made.names:
            _ip("netns", "add", name)
    except subprocess.CalledProcessError:
        for name in made.names:
            _ip("netns", "del", name, check=False)
        pytest.skip("this machine does not let us make network namespaces")
    try:
        ends = [("netns", made.names[0]), ("peer", "name", "cable", "netns", made.names[1])]
        _ip("link", "add", "cable", *ends[0], "type", "veth", *ends[1])
        for name, host in zip(made.names, made.hosts, strict=True):
            for words in (("addr", "add", f"{host}/30", "dev", "cable"), ("link", "set", "cable", "up")):
                _ip("netns", "exec", name, "ip", *words)
            _ip("netns", "exec", name, "ip", "link", "set", "lo", "up")
        yield made
    finally:
        for name in made.names:
            _ip("netns", "del", name, check=False)


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True, timeout=20)


class Town:
    """Publishers and subscribers, half of them on each side of the cable."""

    def __init__(self, directory: Path, cable: Cable, peers: int, seed: int, heartbeat: float) -> None:
        self.random, self.cable, self.heartbeat = random.Random(seed), cable, heartbeat
        self.realm = Realm.create(directory / "realm")
        self.filters = {f"sub-{number}": self._filter() for number in range(peers - len(PUBLISHERS))}
        self.names = [*PUBLISHERS, *self.filters]
        self.realm.enrol_many(self.names)
        self.realm.create_topic(TOPIC, SCHEMA, protection=protection_of("attribute"), access="members")
        self.realm.subscribe_many(TOPIC, [(name, text, None) for name, text in self.filters.items()])
        self.nursery = Nursery(directory / "realm", directory / "out")
        self.running: dict[str, PeerProcess] = {}
        self.published = list[dict[str, object]]()
        self._publishers = {name: Publisher(self.realm, TOPIC, name) for name in PUBLISHERS}

    def _filter(self) -> str:
        low = self.random.randrange(14)
        ward = self.random.choice(WARDS)
        return self.random.choice(
            [
                f"heat BETWEEN {low} AND {low + self.random.randrange(1, 8)}",
                f"ward = '{ward}'",
                f"ward LIKE '{ward[0]}%' AND heat >= {low}",
                f"heat < {low + 1} OR ward = '{ward}'",
            ]
        )

    def start(self, name: str) -> None:
        side = self.names.index(name) % 2
        listen = ("--listen", f"{self.cable.hosts[side]}:0")
        options = ("--heartbeat", str(self.heartbeat), *listen)
        self.running[name] = self.nursery.start(name, options=options, netns=self.cable.names[side])

    def publish(self, count: int, by: str | None = None) -> None:
        for _ in range(count):
            event = {"heat": self.random.randrange(16), "ward": self.random.choice(WARDS)}
            made = Event(dict(event), str(len(self.published)).encode())
            self._publishers[by or self.random.choice(PUBLISHERS)].publish([made])
            self.published.append(event)

    def beside(self, name: str) -> list[str]:
        """The subscribers on the same side of the cable."""
        side = self.names.index(name) % 2
        return [each for each in self.filters if self.names.index(each) % 2 == side]

    def expected(self, name: str) -> list[int]:
        condition = fit(parse(self.filters[name]), SCHEMA)
        return [n for n, event in enumerate(self.published) if evaluate(condition, SCHEMA.parse(event)) is True]

    def received(self, name: str) -> list[int]:
        with Subscriber(self.realm, TOPIC, name, from_=0) as reader:
            return sorted(int(event.payload) for event in reader)

    def homeless(self) -> list[str]:
        """Peers that do not run or lack a place."""
        shown = {each["entity"]: each for each in status.all_here(self.realm)}
        return [name for name in self.names if not (name in shown and shown[name]["live"] and _has_places(shown[name]))]

    def why_homeless(self) -> str:
        """What each of them says of itself."""
        found = [(name, status.read(self.realm, name), self.running[name].said()[-800:]) for name in self.homeless()]
        return "\n".join(f"{name} has no place: {shown}\n{said}" for name, shown, said in found)

    def goes_on(self, publisher: str) -> None:
        """Publishes, and waits until something of it arrives on this side of the cable."""
        first = len(self.published)
        self.publish(4, by=publisher)
        wanted = [each for each in self.beside(publisher) if max(self.expected(each), default=0) >= first]
        until(
            lambda: any(max(self.received(each), default=0) >= first for each in wanted),
            within=600.0,
            what=lambda: f"nothing of {publisher} arrives on its side of the cut: {wanted} wait for it",
        )

    @cached_property
    def labels(self) -> dict[tuple[str, int], bytes]:
        """The label of each peer's seat, by its own keys: nobody else could tell."""
        found = {}
        for name in self.names:
            with CredentialRing(self.realm, TOPIC, self.realm.identity(name)) as ring:
                places = PeerPlaces(self.realm, TOPIC, name, ring)
                places.refresh(rendezvous=name in PUBLISHERS)
                found |= {(name, seat): label for seat, (_, label) in places._labels.items()}
        return found

    def links(self) -> list[tuple[str, int, str, int]]:
        """Every seat of a running peer that has a parent, and that parent's seat."""
        return [
            (shown["entity"], seat["seat"], seat["parent"], seat["parent_seat"])
            for shown in status.all_here(self.realm)
            for seat in shown["topics"].get(TOPIC, {"seats": []})["seats"]
            if seat["parent"] is not None
        ]

    def check_containment(self) -> int:
        """Every parent's label covers its child's, whatever else happens; how many links there are."""
        spaces, links = EventSpace(SCHEMA).spaces.values(), self.links()
        for name, seat, parent, parent_seat in links:
            own, above = self.labels[name, seat], self.labels[parent, parent_seat]
            assert any(above in space.path(own) for space in spaces), f"{parent} does not cover {name}'s seat {seat}"
        return len(links)

    def moves(self) -> tuple[int, list[tuple[str, int, str, int]]]:
        """Searches so far, and who stands where."""
        counts = [shown["topics"].get(TOPIC, {"counts": {}})["counts"] for shown in status.all_here(self.realm)]
        return sum(each.get("searches", 0) for each in counts), sorted(self.links())

    def settles(self, within: float) -> None:
        """Waits for a time of some heartbeats in which nobody searches and nobody moves: there is no livelock."""
        deadline = time.monotonic() + within
        while True:
            before = self.moves()
            time.sleep(6 * self.heartbeat)
            if self.moves() == before and not self.homeless():
                return
            assert time.monotonic() < deadline, f"after {within:.0f} s peers still move"

    def close(self) -> None:
        for each in self._publishers.values():
            each.close()
        self.nursery.close()


def _has_places(shown: dict[str, Any]) -> bool:
    seats = shown["topics"].get(TOPIC, {"seats": []})["seats"]
    return bool(seats) and all(seat["root"] or seat["parent"] is not None for seat in seats)


def drill(directory: Path, peers: int, kills: int, events: int, seed: int, heartbeat: float) -> None:
    began = time.monotonic()

    def note(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    with cable() as plug:
        town = Town(directory, plug, peers, seed, heartbeat)
        note("the realm is made")
        try:
            for name in town.names:
                town.start(name)
            note("all are started")
            until(lambda: not town.homeless(), within=900.0, what=town.why_homeless)
            note(f"{peers} processes have their places, on {town.check_containment()} links")
            town.publish(events // 4)
            # (1) killed at random, one after the other, and back after a while
            victims = town.random.sample(town.names, kills)
            for victim in victims:
                town.running[victim].kill()
                town.publish(events // (4 * kills) or 1)
                town.check_containment()
                time.sleep(town.random.uniform(0.2, 1.0))
            note(f"killed: {', '.join(victims)}")
            for victim in victims:
                town.start(victim)
            note("all are started again")
            # (2) the cable is cut for longer than anybody waits for a sign of life
            plug.set(plugged=False)
            cut = time.monotonic()
            for _ in range(10):
                town.publish(events // 40 or 1)
                town.check_containment()
                time.sleep(heartbeat)
            for publisher in PUBLISHERS[:2]:  # one on each side
                town.goes_on(publisher)
                note(f"{publisher}'s events arrive on its side of the cut")
            plug.set(plugged=True)
            note(f"the cable was cut for {time.monotonic() - cut:.0f} s and is mended")
            town.publish(events // 4)
            # (3) everything that is wanted arrives, once
            missing = {name: town.expected(name) for name in town.filters}
            deadline = time.monotonic() + 600.0
            while missing and time.monotonic() < deadline:
                for name in list(missing):
                    found = town.received(name)
                    assert len(set(found)) == len(found), f"{name} got something twice"
                    if found == missing[name]:
                        del missing[name]
                time.sleep(1.0)
            late = {name: set(wanted) - set(town.received(name)) for name, wanted in missing.items()}
            said = "\n".join(town.running[name].said()[-800:] for name in missing)
            assert not missing, f"after healing these still lack events: {late}\n{said}"
            wanted = sum(len(town.expected(name)) for name in town.filters)
            note(f"{len(town.published)} events, {wanted} deliveries, each once")
            until(lambda: not town.homeless(), within=300.0, what=town.why_homeless)
            # (4) nobody moves any more, parents cover their children, and peers' own logs agree
            town.settles(within=600.0)
            note(f"nobody moves; {town.check_containment()} links")
            report = PeersAudit(town.realm, TOPIC).run(lambda done: None)
            assert report.ok, report.problems
            note(f"check: {report.events} events, {report.deliveries} deliveries, {dict(report.also)}")
        finally:
            with suppress(OSError):
                town.close()


@pytest.mark.soak
@pytest.mark.timeout(2_400)
def test_fifty_processes_ten_kills_and_a_cut_cable(tmp_path: Path) -> None:
    drill(tmp_path, peers=50, kills=10, events=160, seed=11, heartbeat=5.0)


@pytest.mark.timeout(400)
def test_eight_processes_two_kills_and_a_cut_cable(tmp_path: Path) -> None:
    drill(tmp_path, peers=8, kills=2, events=40, seed=5, heartbeat=2.0)
