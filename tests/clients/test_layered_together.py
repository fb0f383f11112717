"""Many subscribers of a layered topic state what they want together: it comes to the same as one after the other, and
whatever goes wrong in between, everybody is told of once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.clients.publisher import Publisher
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Busy, FilterRejected, Misuse
from sealcast.log.port import Record
from sealcast.log.post_log import PostLog
from sealcast.model import Event
from sealcast.protections.layered import together
from sealcast.protections.layered.interests import LayeredInterests
from sealcast.protections.layered.telling import RightChanges
from sealcast.protections.layered.together import refresh_all, subscribe_together
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Grant, PlaceSubscriber, Revoke, Right
from sealcast.wire import posts
from tests.clients.layered_pump import pump
from tests.clients.test_layered_clients import realm_with

NAMES = [f"reader-{n}" for n in range(7)]


@pytest.fixture
def realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Realm:
    monkeypatch.setattr(together, "AT_A_TIME", 3)  # so that a few are several parts
    made = realm_with(tmp_path)
    made.enrol_many([*NAMES, "lse"])
    Publisher(made, "quotes", "nyse").close()
    return made


def wanted() -> list[tuple[str, str, str | None]]:
    return [(name, f"price > {n}", None) for n, name in enumerate(NAMES)] + [(NAMES[0], "urgent", "mine")]


def records(realm: Realm) -> Iterator[Record]:
    for broker in realm.state().overlay("quotes").parents:
        with PostLog(realm.paths.topic("quotes", broker).filter_posts) as log:
            yield from log.read(0, 1 << 24)


def published(realm: Realm, *prices: int) -> dict[str, list[str]]:
    """What everyone gets of these."""
    with Publisher(realm, "quotes", "nyse") as publisher:
        publisher.publish([Event({"price": price}) for price in prices])
    pump(realm, "quotes")
    got = {}
    for name in NAMES:
        with Subscriber(realm, "quotes", name, from_=0) as reader:
            got[name] = [str(event.attributes["price"]) for event in reader]
    return got


def test_together_is_as_one_by_one(realm: Realm, tmp_path: Path) -> None:
    other = realm_with(tmp_path / "other")
    other.enrol_many([*NAMES, "lse"])
    Publisher(other, "quotes", "nyse").close()
    version = realm.state().version
    made = subscribe_together(realm, "quotes", wanted())
    single = []
    for name in NAMES:
        with LayeredInterests(other, "quotes", name) as interests:
            single += interests.add_many([(text, id) for who, text, id in wanted() if who == name])
            assert interests.trouble is None
    assert made == single and not any(interest.remarks for interest in made)
    assert realm.state().overlay("quotes").places == other.state().overlay("quotes").places
    # A place and a key each, and everyone posted what it would have posted alone, under its own name and token.
    assert realm.state().version == version + 2 * len(NAMES)
    seen, alone = ([posts.parse(record.data) for record in records(each)] for each in (realm, other))
    assert sorted((p.header.sender, p.header.receiver, p.header.fresh, len(p.filters)) for p in seen) == sorted(
        (p.header.sender, p.header.receiver, p.header.fresh, len(p.filters)) for p in alone
    )
    assert len({p.token for p in seen}) == len(seen) == len(NAMES)
    assert not list(refresh_all(realm)), "there is nothing more to tell"
    assert published(realm, 2, 50) == published(other, 2, 50)


def test_places_and_keys_are_one_transaction_each(realm: Realm) -> None:
    before = realm.state().version
    subscribe_together(realm, "quotes", wanted())
    kinds = [type(change) for _, _, change in realm.registry.changes(before + 1)]
    placed = [kind is PlaceSubscriber for kind in kinds]
    assert placed == [True] * len(NAMES) + [False] * len(NAMES)
    load = [len(realm.state().overlay("quotes").subscribers(leaf)) for leaf in ("quotes-node-2", "quotes-node-3")]
    assert sorted(load) == [3, 4], "leaves fill up evenly"


def test_a_filter_that_cannot_be_is_nobodys(realm: Realm) -> None:
    version = realm.state().version
    with pytest.raises(FilterRejected):
        subscribe_together(realm, "quotes", [(NAMES[0], "urgent", None), (NAMES[1], "price IS NULL", None)])
    assert realm.state().version == version and not list(records(realm))
    subscribe_together(realm, "quotes", [(NAMES[0], "urgent", None)], broker="quotes-node-3")
    with pytest.raises(Misuse, match="is at broker 'quotes-node-3'"):
        subscribe_together(realm, "quotes", [(NAMES[0], "urgent", None)], broker="quotes-node-2")


def test_posts_that_did_not_get_through_are_made_again_under_the_same_numbers(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bytes] = []
    append = PostLog.append

    def busy(log: PostLog, made: list[bytes]) -> None:
        tried.extend(made)
        raise Busy("the broker does not keep up")

    def lost(log: PostLog, made: list[bytes]) -> None:
        append(log, made)
        raise Busy("the disk was full right after it")

    monkeypatch.setattr(PostLog, "append", busy)
    made = subscribe_together(realm, "quotes", wanted())
    assert all("was not told yet" in interest.remarks[0] for interest in made) and not list(records(realm))
    monkeypatch.setattr(PostLog, "append", lost)
    assert {type(done) for _, _, done in refresh_all(realm)} == {Busy}
    monkeypatch.setattr(PostLog, "append", append)
    assert {getattr(done, "posts", None) for _, _, done in refresh_all(realm)} == {1}
    numbers = [posts.parse(record.data).header for record in records(realm)]
    assert len(numbers) == 2 * len(NAMES) and len(set(numbers)) == len(NAMES)
    assert {posts.parse(data).header for data in tried} == set(numbers)
    assert published(realm, 2, 50)[NAMES[1]] == ["2.0", "50.0"]


def test_a_new_publisher_is_told_by_everyone_who_is_here(realm: Realm) -> None:
    subscribe_together(realm, "quotes", wanted())
    known = sum(1 for _ in records(realm))
    Publisher(realm, "quotes", "lse").close()
    made = [posts.parse(record.data).header for record in records(realm)]
    assert len(made) == known + len(NAMES) and sum(header.publisher == "lse" for header in made) == len(NAMES)


def test_what_was_decided_is_looked_up_once_for_all(tmp_path: Path) -> None:
    realm = realm_with(tmp_path, access="granted")
    for name in ("alice", "bob", "nyse"):
        realm.grant("quotes", name)
    realm.revoke("quotes", "alice", [Right.SUBSCRIBE])
    now, decided = realm.state().version, RightChanges(realm, "quotes")
    for version in (now - 1, now, now - 3, 0, *range(now)):
        for name in ("alice", "bob", "nyse", "lse"):
            assert decided.since(version, now, name) is _decided(realm, version, now, name), (version, name)
    realm.revoke("quotes", "bob", [Right.SUBSCRIBE])
    later = realm.state().version
    assert decided.since(now, later, "bob") and not decided.since(now, later, "nyse")


def _decided(realm: Realm, version: int, now: int, name: str) -> bool:
    return any(
        isinstance(change, Grant | Revoke) and (change.topic, change.entity) == ("quotes", name)
        for _, _, change in realm.registry.changes(version + 1, now)
    )
