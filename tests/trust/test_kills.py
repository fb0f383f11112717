"""Processes killed (SIGKILL) at random moments of an act: it was done, or it was not; and the next one works.

Where `test_administration` kills at each touch of the disk, one after the other, here the clock decides: also between
two of them, in the middle of a signature, or inside the database. What is left is looked at by a process that knows
nothing of the one before: the registry verifies, every key opens with the file that it was made for, the authority's
own lists are no further than the realm's, and events still go to those who may read and to nobody else.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Rejected
from sealcast.model import Event, Schema
from sealcast.trust.admin import compromise
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm, now_us
from sealcast.trust.realm.state import RealmState
from tests.children import start
from tests.clients.pump import pump
from tests.copies import remove_realm

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 100}]})
MANY = [f"e{number}" for number in range(40)]


@dataclass(frozen=True)
class Act:
    do: Callable[[Realm], object]
    #: Whether a state has it.
    done: Callable[[RealmState], bool]
    #: Whether bob may still read afterwards.
    spares_bob: bool = True


ACTS = {
    "revocation": Act(
        lambda realm: realm.revoke_entities(["bob", *MANY[:20]]), lambda state: state.entity("bob").revoked, False
    ),
    "rotation": Act(
        lambda realm: realm.rotate_many(["quotes", "orders"]), lambda state: state.topic("orders").epoch == 2
    ),
    "registration": Act(
        lambda realm: realm.create_topic("new", SCHEMA, access="members"), lambda state: "new" in state.topics
    ),
    "enrolment": Act(lambda realm: realm.enrol_many(["x", "y", "z"]), lambda state: "z" in state.entities),
    "compromise": Act(lambda realm: compromise.respond(realm, "bob"), lambda state: state.entity("bob").revoked, False),
    "authority": Act(
        lambda realm: realm.replace_authority(),
        lambda state: state.founding is not None and len(state.founding.authorities) == 2,
    ),
}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    realm = Realm.create(tmp_path_factory.mktemp("kills") / "realm")
    realm.enrol_many(["alice", "bob", "nyse", *MANY])
    for topic in ("quotes", "orders"):
        realm.create_topic(topic, SCHEMA, access="members")
        realm.subscribe_many(topic, [(name, "price >= 0", None) for name in ("alice", "bob")])
    return realm.paths.root


def do(root: Path, name: str, tell: int) -> None:
    realm = Realm(root)
    realm.state()
    os.write(tell, b".")
    ACTS[name].do(realm)


def killed(root: Path, name: str, after: float | None) -> float:
    """The act in a process of its own, killed after so many seconds if it is not over by then; how long it took."""
    told, tell = os.pipe()
    child = start(do, root, name, hand_over=[tell])
    os.close(tell)
    assert os.read(told, 1) == b"."
    os.close(told)
    began = time.monotonic()
    if after is not None:
        time.sleep(after)
        child.kill()
    child.wait()
    return time.monotonic() - began


def check_whole(realm: Realm) -> RealmState:
    """Everything there is hangs together: the registry, and the private keys in their files."""
    state = realm.state()
    trust, now = realm.trust(state), now_us()
    for who in state.entities.values():
        assert who.revoked == all(state.revoked.is_revoked(serial) for serial in who.serials)
        if not who.revoked:
            assert trust.verify(who.certificate, now, state.revoked, name=who.name).name == who.name
        if Role.ENTITY in who.roles:
            assert realm.identity(who.name).public_keys == certificates.parse(who.certificate).keys
    for name, found in state.topics.items():
        keys = realm.broker().topic_keys(state, found.topic)
        for who in state.entitled(name, now):
            assert realm.identity(who.name).pair_key(state, name) == keys.pair_key(who.name)
        assert all(each.epoch == found.topic.epoch for id, each in found.credentials.items() if live(state, name, id))
    assert realm.authority().lists.view.number <= state.revoked.number
    return state


def live(state: RealmState, topic: str, id: str) -> bool:
    return not state.entity(state.subscription(id).subscriber).revoked


def check_works(realm: Realm, spares_bob: bool) -> None:
    """The next acts and events go their way, whatever was left behind."""
    for topic in realm.state().topics:
        with Publisher(realm, topic, "nyse") as publisher:
            publisher.publish([Event({"price": 7}, b"after")])
        pump(realm, topic)
        for name in ("alice", "bob") if topic != "new" else ():
            if name == "alice" or spares_bob:
                with Subscriber(realm, topic, name) as reader:
                    assert [event.payload for event in reader] == [b"after"]
            else:
                with pytest.raises(Rejected, match="was revoked"):
                    Subscriber(realm, topic, name)
    realm.rotate("quotes")
    realm.revoke_entity(MANY[-1])
    assert realm.authority().lists.view.number == realm.state().revoked.number, "an authority that was behind caught up"
    check_whole(realm)


def kill_and_look(first: Path, directory: Path, name: str, kills: int, moments: random.Random) -> set[bool]:
    """What the kills left: done, not done, or some of each."""
    act, outcomes = ACTS[name], set[bool]()
    before = Realm(first).registry.version()
    took = killed(Path(shutil.copytree(first, directory / "whole")), name, None)
    for number in range(kills):
        root = Path(shutil.copytree(first, directory / str(number)))
        killed(root, name, moments.uniform(0, 1.1 * took))
        realm = Realm(root)
        done = act.done(check_whole(realm))
        assert done == (realm.registry.version() > before), "half of it is there"
        outcomes.add(done)
        if not done:
            act.do(realm)
            assert act.done(check_whole(Realm(root)))
        check_works(Realm(root), act.spares_bob)
        remove_realm(root)
    return outcomes


@pytest.mark.parametrize("name", ACTS)
def test_killed_at_a_random_moment_it_was_done_or_it_was_not(first: Path, tmp_path: Path, name: str) -> None:
    kill_and_look(first, tmp_path, name, 1, random.Random(name))


@pytest.mark.soak
@pytest.mark.parametrize("name", ACTS)
def test_killed_again_and_again(first: Path, tmp_path: Path, name: str) -> None:
    outcomes = kill_and_look(first, tmp_path, name, 40, random.Random(f"{name} again"))
    assert outcomes == {True, False}, "some came too early and some too late, or moments were not random"
