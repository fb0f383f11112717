"""Filters that brokers read are for these brokers and their owner. Somebody else reads everything, and learns none."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.broker import tables
from sealcast.broker.snapshots import SealedSnapshots, StoredTable
from sealcast.errors import CannotOpen, FilterRejected, Rejected
from sealcast.filters.index import snapshot
from sealcast.model.subscription import Subscription
from sealcast.overlay import moves
from sealcast.overlay.filter_keys import FilterKeyHandover
from sealcast.protections.filter_texts import FilterTextsAtHand
from sealcast.protections.port import client_side, witness_side
from sealcast.trust import history
from sealcast.trust.handles import BrokerRealm, EntityRealm
from sealcast.trust.keys import minting
from sealcast.trust.keys.filter_texts import BrokerFilters, FilterSealer, OwnerFilters
from sealcast.trust.realm.changes import AddSubscription, HandFilterKey
from sealcast.trust.realm.compromise import filters_known
from sealcast.wire import sealed_texts
from sealcast.wire.sealed_texts import is_sealed_text, key_id_of
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.copies import copy_realm

TOPIC = "vitals"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "pulse", "type": "int", "min": 0, "max": 255},
            {"name": "patient", "type": "string", "max_length": 32},
        ]
    }
)
#: What nobody but brokers and its owner should come across: a name in a filter, and the words around it.
CANARIES = (b"Kowalczyk", b"pulse > 117")
SECRET = "patient = 'Kowalczyk' AND pulse > 117"
READING = ("endpoint", "payload")


def made(directory: Path, protection: str = "endpoint") -> Realm:
    realm = Realm.create(directory)
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members")
    realm.enrol_many(["monitor", "nurse", "doctor", "mallory"])
    return realm


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A realm with nobody's subscriptions yet: making one takes longer than most tests."""
    return made(tmp_path_factory.mktemp("filters") / "realm").paths.root


@pytest.fixture
def realm(plain: Path, tmp_path: Path) -> Realm:
    copy_realm(plain, tmp_path / "realm")
    return Realm(tmp_path / "realm")


def publish(realm: Realm, *pulses: int) -> None:
    Publisher(realm, TOPIC, as_="monitor").publish(
        [Event({"pulse": pulse, "patient": "Kowalczyk"}, f"{pulse}".encode()) for pulse in pulses]
    )


def read(realm: Realm, name: str) -> list[bytes]:
    with Subscriber(realm, TOPIC, as_=name) as subscriber:
        return [event.payload for event in subscriber.poll(100)]


def state_plainly(realm: Realm, id: str, subscriber: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As releases before this one stored a filter."""
    monkeypatch.setattr(history, "vet", lambda fold, change, at_us: None)
    state = realm.state()
    token = realm.issuer().credential(state, TOPIC, subscriber, realm.clock())
    realm.registry.apply(AddSubscription(id, TOPIC, subscriber, text, token))
    monkeypatch.undo()


def state_sealed(realm: Realm, id: str, subscriber: str, sealed: str, *keys: HandFilterKey) -> None:
    state = realm.state()
    token = minting.credential_for(realm.center(), state, TOPIC, subscriber, realm.clock())
    realm.registry.apply_many([*keys, AddSubscription(id, TOPIC, subscriber, sealed, token)])


def stored_one(realm: Realm) -> Subscription:
    """The nurse's, as the registry has it."""
    id = realm.subscribe(TOPIC, "nurse", SECRET).id
    return realm.state().subscription(id)


# --- another member reads everything --------------------------------------------------------------------


def seen_by_a_member(realm: Realm) -> Iterator[bytes]:
    """All that another client of the registry and of the realm's directory can read, and what it decodes of it. Key
    files are their owners' alone."""
    with sqlite3.connect(realm.paths.registry) as connection:
        for row in connection.execute("SELECT * FROM changes"):
            for value in row:
                yield value if isinstance(value, bytes) else str(value).encode()
    for path in realm.paths.root.rglob("*"):
        private = {realm.paths.secrets, realm.paths.entities} & {path, *path.parents}
        if path.is_file() and not private:
            yield path.read_bytes() + path.name.encode()
    for subscription in realm.state().subscriptions_of(TOPIC):
        body = subscription.filter.removeprefix(sealed_texts.PREFIX)
        if is_sealed_text(subscription.filter):
            yield base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


def canaries_in(realm: Realm) -> set[bytes]:
    forms = {
        canary: (canary, canary.hex().encode(), "".join(map(chr, canary)).encode("utf-16-le")) for canary in CANARIES
    }
    return {
        canary
        for data in seen_by_a_member(realm)
        for canary, written in forms.items()
        if any(f in data for f in written)
    }


@pytest.mark.parametrize("protection", READING)
def test_another_member_finds_no_filter_anywhere(
    tmp_path: Path, protection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MIN_SNAPSHOT", 1)
    realm = made(tmp_path / "realm", protection)
    # By the administrator, by the subscriber itself at a broker's desk, and of the past.
    realm.subscribe(TOPIC, "nurse", SECRET)
    with client_side(realm.state().topic(TOPIC).protection).interests(realm, TOPIC, "doctor") as interests:
        interests.add(SECRET)
    publish(realm, 100, 120)
    assert pump(realm, TOPIC)["deliveries"] == 2
    assert [read(realm, name) for name in ("nurse", "doctor")] == [[b"120"]] * 2
    done = sealcast(
        "replay",
        TOPIC,
        "--as",
        "nurse",
        "--from",
        "2020-01-01",
        "--filter",
        SECRET,
        "--json",
        "--realm",
        realm.paths.root,
    ).document
    assert len(done["events"]) == 1
    assert list(realm.paths.tables(TOPIC).glob("*.table")), "there is a compiled table to look into"
    assert canaries_in(realm) == set()


def test_the_member_finds_what_an_earlier_release_stored(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variants: the row in clear, and the compiled table."""
    assert canaries_in(realm) == set()
    state_plainly(realm, "old", "nurse", SECRET, monkeypatch)
    assert canaries_in(realm) == set(CANARIES)


def test_the_member_finds_literals_in_a_table_that_is_not_sealed(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_clear(self: SealedSnapshots, digest: bytes, table: StoredTable) -> None:
        self._directory.mkdir(exist_ok=True)
        (self._directory / "leak.table").write_bytes(snapshot.to_bytes(table.index))

    monkeypatch.setattr(tables, "MIN_SNAPSHOT", 1)
    monkeypatch.setattr(SealedSnapshots, "keep", in_clear)
    realm.subscribe(TOPIC, "nurse", SECRET)
    publish(realm, 120)
    pump(realm, TOPIC)
    assert CANARIES[0] in canaries_in(realm)


def test_lengths_show_in_buckets_only(realm: Realm) -> None:
    texts = ["pulse > 1", SECRET, "patient = '" + "x" * 32 + "'", "pulse IN (" + ", ".join(map(str, range(60))) + ")"]
    realm.subscribe_many(TOPIC, [("nurse", text, None) for text in texts])
    lengths = [len(s.filter) for s in realm.state().subscriptions_of(TOPIC)]
    assert len(set(lengths[:3])) == 1 and lengths[3] > lengths[0]


# --- who opens it ---------------------------------------------------------------------------------------


def test_owner_and_serving_brokers_open_it_and_nobody_else(realm: Realm) -> None:
    realm.add_broker("idle")  # serves nothing
    (subscription,) = [realm.subscribe(TOPIC, "nurse", SECRET)]
    state = realm.state()
    stored = state.subscription(subscription.id)
    assert subscription.filter == SECRET and is_sealed_text(stored.filter)
    for keys in (OwnerFilters(realm.identity("nurse")), BrokerFilters(realm.broker())):
        assert keys.text(state, stored) == SECRET
    for others in (OwnerFilters(realm.identity("mallory")), BrokerFilters(realm.broker("idle"))):
        with pytest.raises(CannotOpen):
            others.text(state, stored)
    # Not even under the owner's name: its keys are not hers.
    with pytest.raises(CannotOpen):
        OwnerFilters(realm.identity("mallory")).text(state, stored._replace(subscriber="mallory"))


@pytest.mark.parametrize("other", [{"id": "nurse-2"}, {"subscriber": "doctor"}, {"topic": "other"}])
def test_a_filter_is_bound_to_its_subscription(realm: Realm, other: dict[str, str]) -> None:
    realm.create_topic("other", SCHEMA, access="members")
    stored = stored_one(realm)
    with pytest.raises(CannotOpen):
        BrokerFilters(realm.broker()).text(realm.state(), stored._replace(**other))


def test_every_byte_of_a_sealed_filter_counts(realm: Realm) -> None:
    stored = stored_one(realm)
    text, filters = stored.filter, BrokerFilters(realm.broker())
    body = bytearray(base64.urlsafe_b64decode(text.removeprefix(sealed_texts.PREFIX) + "=="))
    wrap = range(35, 115)  # the owner's own copy of the key: the broker does not look at it
    for at in range(len(body)):
        body[at] ^= 1
        altered = sealed_texts.PREFIX + base64.urlsafe_b64encode(body).rstrip(b"=").decode()
        body[at] ^= 1
        keys = OwnerFilters(realm.identity("nurse")) if at in wrap and at % 16 == 0 else filters
        if at not in wrap or at % 16 == 0:
            with pytest.raises(CannotOpen):
                keys.text(realm.state(), stored._replace(filter=altered))


def test_who_cannot_open_filters_is_told_so(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", SECRET)
    side = client_side(realm.state().topic(TOPIC).protection)
    assert [each.filter for each in side.listed(realm, TOPIC)] == [SECRET], "the broker's keys are here"
    realm.paths.broker_key.unlink()
    own = EntityRealm(realm.paths.root)
    assert [each.filter for each in side.listed(own, TOPIC, "nurse")] == [SECRET], "and so are the nurse's"
    realm.paths.entity_key("nurse").unlink()
    (unknown,) = side.listed(EntityRealm(realm.paths.root), TOPIC)
    assert (unknown.subscriber, unknown.filter) == ("nurse", None)
    listed = sealcast("subscription", "list", "--json", "--realm", realm.paths.root)
    assert listed.document["subscriptions"][0]["filter"] is None
    assert sealcast("audit", "--json", "--realm", realm.paths.root).document["subscriptions"][0]["filter"] is None


def test_a_realm_that_keeps_keys_apart_lists_nothing_with_a_brokers(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm", at_hand=False)
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol("nurse")
    realm.subscribe(TOPIC, "nurse", SECRET)
    realm.paths.entity_key("nurse").unlink()
    (stored,) = realm.state().subscriptions_of(TOPIC)
    assert FilterTextsAtHand(realm).text(stored) is None


# --- what goes into the registry ------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SECRET, sealed_texts.PREFIX, sealed_texts.PREFIX + "AAAA", "sealed-text:%%%%" * 8])
def test_the_registry_takes_no_filter_that_is_not_sealed(realm: Realm, text: str) -> None:
    with pytest.raises((FilterRejected, Rejected)):
        state_sealed(realm, "bad", "nurse", text)
    assert not list(realm.state().subscriptions_of(TOPIC))


def test_a_filter_is_vetted_before_it_is_sealed(realm: Realm) -> None:
    for text, named in (("pulze > 1", "pulze"), ("pulse > 'x'", "pulse"), ("pulse >", "end")):
        with pytest.raises(FilterRejected, match=named):
            realm.subscribe(TOPIC, "nurse", text)
    assert not list(realm.state().subscriptions_of(TOPIC))


def test_one_key_serves_a_transaction_and_a_desk_goes_on_with_it(realm: Realm) -> None:
    realm.subscribe_many(TOPIC, [("nurse", f"pulse > {n}", None) for n in range(5)] + [("doctor", SECRET, None)])
    with client_side(realm.state().topic(TOPIC).protection).interests(realm, TOPIC, "doctor") as interests:
        for _ in range(2):
            interests.add("pulse > 7", "mine")  # asked twice, done once
        interests.add("pulse > 8")
    found = realm.state().topic_state(TOPIC)
    assert len(found.subscriptions) == 8 and len(found.filter_keys) == 1
    assert len({key_id_of(each.filter) for each in found.subscriptions.values()}) == 1
    with pytest.raises(Rejected), client_side(found.topic.protection).interests(realm, TOPIC, "doctor") as interests:
        interests.add("pulse > 9", "mine")  # the id was given, to another filter


# --- filters that cannot be read ------------------------------------------------------------------------


def test_a_bad_filter_is_suspended_and_harms_nobody(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", "pulse > 100")
    stolen = realm.state().subscription("nurse-1").filter
    state_sealed(realm, "copied", "mallory", stolen)  # somebody else's, word for word
    sealer, keys = FilterSealer.fresh(realm.state(), TOPIC)
    bad = Subscription("bad", TOPIC, "doctor", "nothing like a filter (")
    state_sealed(realm, "bad", "doctor", sealer.seal(bad), *keys)
    publish(realm, 120)
    counts = pump(realm, TOPIC)
    assert counts["suspended"] == 2 and counts["deliveries"] == 1
    assert read(realm, "nurse") == [b"120"] and read(realm, "mallory") == []
    assert sealcast("check", TOPIC, "--realm", realm.paths.root).code == 0, "whoever does it again suspends the same"
    for name, said in (("mallory", "copied"), ("doctor", "bad")):
        answer = sealcast("why", f"{TOPIC}/0/0/0", name, "--json", "--realm", realm.paths.root)
        assert answer.document["verdict"] == "suspended" and said in answer.document["because"], answer.document
    status = sealcast("status", "--json", "--realm", realm.paths.root).document
    assert {s["subscription"] for t in status["topics"] for s in t["suspended"]} == {"copied", "bad"}


def test_suspension_is_the_same_by_snapshot_and_on_top_of_one(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MIN_SNAPSHOT", 1)
    realm.subscribe_many(TOPIC, [("nurse", f"pulse > {n}", None) for n in range(40)])
    sealer, keys = FilterSealer.fresh(realm.state(), TOPIC)
    state_sealed(realm, "bad", "doctor", sealer.seal(Subscription("bad", TOPIC, "doctor", "(")), *keys)
    for _ in range(2):  # compiled, then read back
        publish(realm, 120)
        assert pump(realm, TOPIC)["suspended"] == 1
    state_sealed(realm, "bad-2", "doctor", sealer.seal(Subscription("bad-2", TOPIC, "doctor", "(")))
    publish(realm, 120)
    assert pump(realm, TOPIC)["suspended"] == 2
    assert sealcast("check", TOPIC, "--realm", realm.paths.root).code == 0


def test_rows_of_earlier_releases_go_on(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    state_plainly(realm, "old", "nurse", "pulse > 100", monkeypatch)
    realm.subscribe(TOPIC, "doctor", "pulse > 110")
    publish(realm, 105, 120)
    pump(realm, TOPIC)
    assert read(realm, "nurse") == [b"105", b"120"] and read(realm, "doctor") == [b"120"]
    assert sealcast("check", TOPIC, "--realm", realm.paths.root).code == 0


# --- several brokers ------------------------------------------------------------------------------------


def test_a_broker_that_serves_later_is_handed_what_it_needs(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", SECRET)
    realm.add_broker("paris", [TOPIC])
    state = realm.state()
    assert BrokerFilters(realm.broker("paris")).text(state, state.subscription("nurse-1")) == SECRET
    realm.subscribe(TOPIC, "doctor", SECRET, broker="paris")
    state = realm.state()
    for broker in ("broker", "paris"):
        assert BrokerFilters(realm.broker(broker)).text(state, state.subscription("doctor-1")) == SECRET


def test_nobody_moves_to_a_broker_that_cannot_read_its_filters(realm: Realm, tmp_path: Path) -> None:
    realm.subscribe(TOPIC, "nurse", SECRET)
    elsewhere = tmp_path / "broker.key"
    realm.paths.broker_key.rename(elsewhere)
    realm.add_broker("paris", [TOPIC])  # no broker could hand it anything
    side = client_side(realm.state().topic(TOPIC).protection)
    with pytest.raises(Rejected, match="was not handed the key of subscription 'nurse-1'"):
        side.move(realm, TOPIC, "nurse", "paris")
    elsewhere.rename(realm.paths.broker_key)
    handover = FilterKeyHandover(BrokerRealm(realm.paths.root), ["broker"])
    assert handover.once() == 1 and handover.once() == 0
    side.move(realm, TOPIC, "nurse", "paris")
    assert realm.state().home_of(TOPIC, "nurse") == "paris"


def test_after_a_broker_is_revoked_its_keys_open_no_new_filter(realm: Realm) -> None:
    realm.add_broker("paris", [TOPIC])
    stolen = realm.broker("paris")
    realm.subscribe(TOPIC, "nurse", SECRET)
    side = client_side(realm.state().topic(TOPIC).protection)
    realm.revoke_entity("paris")
    with side.interests(realm, TOPIC, "doctor") as interests:
        interests.add(SECRET, "new")
    state = realm.state()
    assert BrokerFilters(stolen).text(state, state.subscription("nurse-1")) == SECRET, "it had it already"
    with pytest.raises(CannotOpen):
        BrokerFilters(stolen).text(state, state.subscription("new"))


def test_after_the_only_broker_was_revoked_the_next_one_reads_the_filters(realm: Realm) -> None:
    realm.subscribe(TOPIC, "nurse", SECRET)
    realm.revoke_entity("broker")
    assert filters_known(realm.state(), "broker") == {TOPIC: 1}
    realm.add_broker("paris", [TOPIC])  # by the administrator, who has the key file of the one that was revoked
    state = realm.state()
    assert BrokerFilters(realm.broker("paris")).text(state, state.subscription("nurse-1")) == SECRET
    assert moves.rehome(realm, "broker") == [(TOPIC, "nurse", "paris")]


def test_subscribers_stay_where_no_other_broker_can_read_their_filters(realm: Realm, tmp_path: Path) -> None:
    realm.subscribe(TOPIC, "nurse", SECRET)
    realm.paths.broker_key.rename(tmp_path / "broker.key")
    realm.add_broker("paris", [TOPIC])
    assert moves.rehome(realm, "broker") == []


def test_explain_says_who_sees_filters(realm: Realm) -> None:
    told = witness_side(realm.state().topic(TOPIC).protection).explain(realm.state(), TOPIC)
    (anyone,) = [party for party in told.parties if "registry" in " ".join(party.learns)]
    assert not any("filters" in each and "size" not in each for each in anyone.learns)
    assert any("filter" in each for each in anyone.cannot)
