"""Key centers forget epochs that are over: whoever takes their files afterwards opens nothing of them."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.reads import Reads
from sealcast.lab.theft.tries import Tries
from sealcast.model.protection import AttributeBased, Endpoint
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret
from sealcast.protections import steps
from sealcast.protections.steps import StepName
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.ratchet import DAY_US, DayTree, day_of
from sealcast.trust.realm.changes import Access, CreateTopic, RotateTopic
from sealcast.trust.realm.parameters import FOR_EVER_S, KeyParameters
from sealcast.trust.realm.stored import from_json, to_json
from sealcast.trust.realm.topics import Topic
from sealcast.trust.vault import keyfile
from tests.cli.shell import sealcast
from tests.clients.pump import pump

TOPIC = "quotes"
SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1_000}]})


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    """Five events, delivered in a topic's first epoch."""
    made = Realm.create(tmp_path / "realm")
    made.create_topic(TOPIC, SCHEMA, access="members")
    made.enrol_many(["nyse", "alice"])
    made.subscribe(TOPIC, "alice", "price > 0")
    publish(made, 1, 2, 3, 4, 5)
    return made


def publish(realm: Realm, *prices: int) -> None:
    with Publisher(realm, TOPIC, "nyse") as writing:
        writing.publish([Event({"price": n}, b"%d" % n) for n in prices])
    steps._open.cache_clear()
    StepName(str(realm.paths.root), TOPIC).open().begin()
    pump(realm, TOPIC)


def later(realm: Realm, days: float) -> Realm:
    """The same realm, some days from now."""
    then = realm.clock() + int(days * DAY_US)
    return Realm(realm.paths.root, clock=lambda: then)


def stolen(realm: Realm) -> Reads:
    """What a thief of the center's file, of the registry and of all other files reads, but of nobody else's keys."""
    return Tries(realm, steal(realm, "center", tokens=False)).reads(TOPIC)


def bare(realm: Realm) -> int:
    """Epochs of the past that follow from the days in the center's file, links left aside; and from each link, as if it
    were an earlier one's."""
    center, about = realm.center(), realm.state().topic(TOPIC)
    days = CenterSecrets(center.identity, None, center._days)
    guesses = [link.secret for link in center._links.values()]
    old = realm.broker().topic_keys(realm.state(), about, 1)._key
    made = {kdf.derive(each, b"topic key", about.id, (1).to_bytes(8, "big")).reveal() for each in guesses}
    return days.has(about, 1) + (old.reveal() in made)


# --- the attack -------------------------------------------------------------------------------------------


def test_a_center_that_is_stolen_after_the_grace_opens_nothing_old(realm: Realm) -> None:
    assert stolen(realm).opened == stolen(realm).frames == 5
    realm.rotate(TOPIC)
    assert later(realm, 6).maintain().forgot == () and stolen(realm).opened == 5, "frames of that epoch are kept yet"
    assert later(realm, 8).maintain().forgot == ("center",)
    found = stolen(realm)
    assert (found.opened, found.frames) == (0, 0), "pieces and frames still lie there, under keys that nobody can make"
    assert bare(realm) == 0, "nor from any secret of the file, whatever stands beside it"
    # Nobody else notices: readers have their keys from the registry, and the present epoch goes on.
    with Subscriber(realm, TOPIC, "alice", from_=0) as reader:
        assert [event.payload for event in reader] == [b"%d" % n for n in range(1, 6)]
    state = realm.state()
    present = realm.center().topic_keys(state.topic(TOPIC)).pair_key("alice")
    assert present == realm.identity("alice").pair_key(state, TOPIC), "which a thief of the present center has"
    assert later(realm, 8).maintain().forgot == (), "once"


def test_where_all_epochs_follow_from_a_master_everything_opens(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant: what earlier releases did."""
    monkeypatch.setattr(CenterSecrets, "forget", classmethod(lambda *about: False))
    realm.rotate(TOPIC)
    later(realm, 8).maintain()
    assert stolen(realm).opened == stolen(realm).frames == 5


def test_a_topic_that_keeps_a_recording_keeps_its_keys(realm: Realm) -> None:
    realm.alter_topic(TOPIC, frames_kept_s=FOR_EVER_S)
    realm.rotate(TOPIC)
    later(realm, 80).maintain()
    assert stolen(realm).opened == 5


def test_brokers_and_members_that_come_late_get_what_there_is(realm: Realm) -> None:
    realm.rotate(TOPIC)
    later(realm, 8).maintain()
    realm.add_broker("east", [TOPIC])
    realm.enrol("bob")
    state = realm.state()
    assert state.topic_key(TOPIC, 2, "east") is not None and state.topic_key(TOPIC, 1, "east") is None
    east = realm.broker("east").topic_keys(state, state.topic(TOPIC))
    assert east.pair_key("bob") == realm.identity("bob").pair_key(state, TOPIC)
    with pytest.raises(NotFound, match=r"has forgotten epoch 1 of topic 'quotes'"):
        realm.center().topic_keys(state.topic(TOPIC), 1)


def test_a_command_says_that_it_forgot(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    realm.rotate(TOPIC)
    monkeypatch.setattr("sealcast.cli.talk.open_realm", lambda: later(realm, 8))
    found = sealcast("maintain", "--json", "--realm", realm.paths.root)
    assert found.document["forgot_epochs"] == ["center"]


def test_the_next_center_cannot_be_had_from_the_last(realm: Realm) -> None:
    """Both ways: a center that was compromised and forgot nothing has its own epochs, and none of the next one's."""
    from sealcast.lab.drill import drill

    report = drill(realm, "center")
    assert report.over and report.before["center", TOPIC].opened == 5
    publish(realm, 6)
    assert stolen(realm).opened == 0, "pieces were sealed again, under another center's keys"


# --- the same keys from every copy ------------------------------------------------------------------------


def topic(**about: object) -> Topic:
    made = Topic(TOPIC, bytes(16), SCHEMA, 1, Endpoint(), 1, Access.MEMBERS, "center", epoch_starts=(100 * DAY_US,))
    return replace(made, **about)  # type: ignore[arg-type]


def rotated(before: Topic, at_us: int) -> Topic:
    return replace(before, epoch=before.epoch + 1, epoch_starts=(*before.epoch_starts, at_us))


def keys(center: CenterSecrets, about: Topic, epoch: int | None = None) -> bytes:
    return center.topic_keys(about, epoch).pair_key("alice").reveal()


def test_copies_that_forgot_more_or_less_agree_on_what_is_to_come() -> None:
    whole, about = CenterSecrets.generate("center"), topic()
    copies, now = [whole], 100 * DAY_US
    for n in range(1, 9):
        now += 20 * DAY_US
        about = rotated(about, now)
        copies.append(copies[-1].forgotten([about], now + 9 * DAY_US, now))
        new = topic(id=bytes([n] * 16), epoch_starts=(now,))
        assert len({keys(copy, about) for copy in copies}) == len({keys(copy, new) for copy in copies}) == 1
        assert keys(copies[0], about, n) not in {keys(copies[0], about), keys(copies[0], new)}
        for epoch in range(1, about.epoch):
            with pytest.raises(NotFound):
                copies[-1].topic_keys(about, epoch)
    assert keys(whole, about, 1), "a copy from before has not forgotten"


def test_what_is_forgotten_is_in_no_byte_of_the_file(tmp_path: Path) -> None:
    path, about = tmp_path / "center.key", topic()
    center = CenterSecrets.generate("center")
    center.save(path)
    links = [center._link(about, 1).secret, center._days.secret(100)]
    after = rotated(about, 120 * DAY_US)
    copy = tmp_path / "copy.key"
    shutil.copy(path, copy)
    assert [CenterSecrets.forget(path, [after], 140 * DAY_US, 140 * DAY_US) for _ in range(2)] == [True, False]
    held = str(CenterSecrets.load(path)._fields())
    assert not any(secret.reveal().hex() in held for secret in links)
    assert keys(CenterSecrets.load(path), after) == keys(CenterSecrets.load(copy), after)
    # Another's topics, and those that have moved away, are not kept.
    moved = replace(after, center="other")
    CenterSecrets.forget(path, [moved], 140 * DAY_US, 140 * DAY_US)
    assert not CenterSecrets.load(path)._links


def test_a_topic_whose_day_is_gone_says_what_is_wrong() -> None:
    """A clock that was far ahead, and is right again: present epochs stay, and what is made now cannot be."""
    center, about = CenterSecrets.generate("center"), topic()
    after = center.forgotten([rotated(about, 101 * DAY_US)], 60_000 * DAY_US, 60_000 * DAY_US)
    assert keys(after, rotated(about, 101 * DAY_US)) == keys(center, rotated(about, 101 * DAY_US))
    with pytest.raises(NotFound, match="forgotten epoch 1") as refused:
        after.topic_keys(topic(id=b"n" * 16, epoch_starts=(102 * DAY_US,)))
    assert "a clock was or is wrong" in str(refused.value.hint)


def test_a_chain_that_began_a_moment_ago_stays_whole_with_its_day() -> None:
    """What could be derived all the same is not said to be forgotten."""
    center, about = CenterSecrets.generate("center"), topic(parameters=KeyParameters(grace_s=0, stale_after_s=600))
    for hour in range(1, 24):
        about = rotated(about, 100 * DAY_US + hour * 3_600_000_000)
    about = replace(about, parameters=replace(about.parameters, frames_kept_s=0))
    assert center.forgotten([about], 101 * DAY_US, 101 * DAY_US) is center
    assert center.forgotten([about], 103 * DAY_US, 101 * DAY_US) is center, "somebody may have made topics since"
    later = center.forgotten([about], 103 * DAY_US, 103 * DAY_US)
    assert later is not center and not later.has(about, 1) and keys(later, about) == keys(center, about)


def test_the_secret_behind_credentials_stays() -> None:
    """It is one for all epochs of a topic without brokers: what it opens is not forgotten, and the page says so."""
    center, about = CenterSecrets.generate("center"), topic(protection=AttributeBased())
    after = rotated(about, 120 * DAY_US)
    kept = center.forgotten([after], 200 * DAY_US, 200 * DAY_US)
    assert kept.master_seed(after) == center.master_seed(about)


# --- realms of earlier releases ---------------------------------------------------------------------------


def legacy() -> tuple[CenterSecrets, Secret]:
    master = Secret.random()
    return CenterSecrets(Identity.generate("center"), master, DayTree({"": kdf.derive(master, b"days")})), master


def test_epochs_of_an_earlier_release_open_until_nobody_needs_them(tmp_path: Path) -> None:
    center, master = legacy()
    path = tmp_path / "center.key"
    keyfile.write(path, CenterSecrets.KIND, {**center.identity.fields(), "master": master.reveal().hex()})
    before = topic(chained_since=0, epoch=2, epoch_starts=(100 * DAY_US, 110 * DAY_US))
    stored = CenterSecrets.load(path)
    for epoch in (1, 2):
        derived = kdf.derive(master, b"topic key", before.id, epoch.to_bytes(8, "big"))
        assert stored.topic_keys(before, epoch)._key == derived
    after = replace(rotated(before, 120 * DAY_US), chained_since=3)
    assert keys(stored, after) != keys(stored, replace(after, chained_since=0), 3)
    # While the master is needed it stays, and then it goes.
    CenterSecrets.forget(path, [after], 121 * DAY_US, 121 * DAY_US)
    assert keys(CenterSecrets.load(path), after, 2) == keys(stored, before)
    assert CenterSecrets.forget(path, [after], 140 * DAY_US, 140 * DAY_US)
    held = CenterSecrets.load(path)
    assert master.reveal().hex() not in str(held._fields()) and keys(held, after) == keys(stored, after)
    with pytest.raises(NotFound, match="earlier release"):
        held.topic_keys(after, 2)


def test_changes_of_an_earlier_release_are_of_no_chain() -> None:
    made = CreateTopic(TOPIC, bytes(16), SCHEMA, parameters=KeyParameters())
    for change in (made, RotateTopic(TOPIC, 2, 5)):
        body = to_json(change)
        assert change.chained and body.pop("chained") is True
        assert from_json(str(change.kind), body).chained is False  # type: ignore[union-attr]


# --- days -------------------------------------------------------------------------------------------------


def test_a_tree_without_earlier_days_gives_the_later_ones() -> None:
    tree, dice = DayTree.generate(), random.Random(5)
    for day in (0, 1, 255, 256, 20_000, 65_535, *(dice.randrange(65_536) for _ in range(20))):
        cut = tree.since(day)
        assert cut.begins == day and len(cut.fields()) <= 16
        later = {day, 65_535, *(dice.randrange(day, 65_536) for _ in range(5))}
        assert all(cut.secret(each) == tree.secret(each) for each in later)
        for each in {day - 1, dice.randrange(day) if day else -1} - {-1}:
            with pytest.raises(NotFound):
                cut.secret(each)
    assert tree.since(300).since(100).begins == 300, "what is forgotten does not come back"
    days = [tree.secret(day).reveal() for day in range(200)]
    assert len(set(days)) == len(days)


def test_what_is_no_tree_is_refused(tmp_path: Path) -> None:
    for body in ({}, {"2": "00" * 32}, {"0" * 17: "00" * 32}):
        with pytest.raises(ValueError, match="no tree"):
            DayTree.from_fields(body)
    with pytest.raises(Misuse, match="no time"):
        day_of(-1)
    path = tmp_path / "center.key"
    fields = CenterSecrets.generate("center")._fields()
    keyfile.write(path, CenterSecrets.KIND, {**fields, "days": {"x": ""}})
    with pytest.raises(Corrupt, match="does not hold a key center's secrets"):
        CenterSecrets.load(path)
