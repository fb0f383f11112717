"""Retention where there is no broker: every peer removes what is old of its own log and its own inbox, readers are told
what they had not read, and nothing goes that has not gone out."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from sealcast import Event, Publisher, Realm, Subscriber
from sealcast.protections import withdrawing
from sealcast.protections.attribute.carry import carry
from sealcast.protections.attribute.keys import CredentialRing
from sealcast.protections.attribute.open import AttributeOpener
from sealcast.protections.attribute.peering import host
from sealcast.protections.attribute.upkeep import PeerUpkeep, Removed
from sealcast.trust.realm.parameters import FOR_EVER_S, KeyParameters
from sealcast.wire import peer_pieces
from tests.children import run
from tests.cli.shell import sealcast
from tests.lifecycle.dying import die_at
from tests.soak.small_realm import FILTERS, SCHEMA, TOPIC, publish

DAY_US = 86_400_000_000


def a_realm(directory: Path, **parameters: int) -> Realm:
    realm = Realm.create(directory / "realm")
    about = KeyParameters.parse({"token_lifetime_s": 200 * 86_400, **parameters})
    realm.create_topic(TOPIC, SCHEMA, protection="attribute", access="members", parameters=about)
    realm.enrol_many(["ann", *FILTERS])
    for name, text in FILTERS.items():
        realm.subscribe(TOPIC, name, text)
    return realm


def deliver(realm: Realm, *numbers: int) -> None:
    publish(realm, list(numbers))
    carry(realm, [TOPIC])


def tidy(realm: Realm, days: float) -> dict[str, Removed]:
    upkeep = PeerUpkeep(realm)
    return {name: upkeep.once(TOPIC, name, realm.clock() + int(days * DAY_US)) for name in ("ann", *FILTERS)}


def read(realm: Realm, name: str, **options: object) -> tuple[list[bytes], int]:
    with Subscriber(realm, TOPIC, name, **options) as reader:  # type: ignore[arg-type]
        return [event.payload for event in reader], reader.dropped.missed


def frames(realm: Realm) -> range:
    with realm.outbox(TOPIC, "ann", read_only=True) as log:
        return range(log.partition(0).start(), log.partition(0).end())


def sealed_bytes(realm: Realm, name: str) -> int:
    return sum(path.stat().st_size for path in realm.paths.topic(TOPIC, name).pieces.glob("*"))


def check(realm: Realm) -> dict[str, object]:
    found = sealcast("check", TOPIC, "--json", "--realm", realm.paths.root)
    assert found.code == 0, found.out + found.err
    return dict(found.document)


def test_each_peer_removes_what_is_old_and_its_reader_is_told(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400, frames_kept_s=FOR_EVER_S)
    deliver(realm, 0, 1, 2)
    with Subscriber(realm, TOPIC, "low") as low:
        first = low.poll(1)[0]
        assert first.payload == b"0"
        low.ack()
    before = sealed_bytes(realm, "low")
    assert tidy(realm, 9)["low"].events == 0 and read(realm, "low", from_=0) == ([b"0", b"1"], 0)
    removed = tidy(realm, 11)
    assert (removed["low"].events, removed["high"].events, removed["ann"].events) == (2, 1, 0)
    assert sealed_bytes(realm, "low") < before / 2
    assert read(realm, "low") == ([], 1), "one it had read before"
    deliver(realm, 4, 3)
    assert read(realm, "low") == ([b"4"], 1) and read(realm, "low", from_=0) == ([b"4"], 2)
    found = check(realm)
    assert found["removed_deliveries"] == 3
    why = sealcast("why", f"{TOPIC}/{first.position}", "low", "--realm", realm.paths.root)
    assert why.code == 0 and "were removed since from the inbox of 'low'" in why.out, why.out + why.err
    assert sealcast("status", "--realm", realm.paths.root).code == 0
    assert sealcast("audit", "--received", "--realm", realm.paths.root).code == 0


def opened(realm: Realm, name: str) -> int:
    """What a thief of a reader's whole directory and keys opens of every piece that lies there."""
    pieces = [peer_pieces.parse(path.read_bytes()) for path in realm.paths.topic(TOPIC, name).pieces.glob("*.piece")]
    with closing(CredentialRing(realm, TOPIC, realm.identity(name))) as ring:
        opener = AttributeOpener.of(realm.state, TOPIC, ring)
        return sum(opener.open(piece.carried(event)) is not None for piece in pieces for event in range(len(piece)))


@pytest.mark.parametrize("files", ["removed", "only noted as gone"])
def test_a_thief_of_a_reader_finds_nothing_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: str) -> None:
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400)
    deliver(realm, 0, 1, 2)
    assert opened(realm, "low") == 2
    if files != "removed":  # the weakened variant
        monkeypatch.setattr(withdrawing, "remove_superseded", lambda step: 0)
    tidy(realm, 11)
    assert opened(realm, "low") == (0 if files == "removed" else 2)


def test_frames_that_went_out_are_removed_and_others_are_not(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, frames_kept_s=4 * 86_400)
    deliver(realm, 0, 1)
    tidy(realm, 1)  # a new file begins
    deliver(realm, 2)
    publish(realm, [3])
    assert frames(realm) == range(3)
    assert tidy(realm, 3)["ann"].frames == 1 and frames(realm) == range(1, 3), "whole files, before the time is over"
    assert tidy(realm, 30)["ann"].frames == 0, "what waits, and what is in one file with it"
    carry(realm, [TOPIC])
    assert read(realm, "high", from_=0) == ([b"2", b"3"], 0), "and it goes out"
    assert "too old to be judged again" in " ".join(map(str, check(realm)["topics"][TOPIC]["not_judged"]))  # type: ignore[index]
    deliver(realm, 0)
    assert read(realm, "low", from_=0)[0] == [b"0", b"1", b"0"]


def test_by_size_nothing_goes_that_could_come_again(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, pieces_kept_bytes=0, frames_kept_s=FOR_EVER_S, frames_kept_bytes=0)
    deliver(realm, 0, 1, 2)
    assert not any(map(any, tidy(realm, 1).values())), "the newest two days: by these, repeated events are known"
    found = tidy(realm, 5)
    assert found["low"].events == 2 and found["high"].events == 1
    assert read(realm, "low") == ([], 2)
    check(realm)


def tidy_and_die(root: Path, moment: str) -> None:
    die_at(moment)
    tidy(Realm(root), 50)


@pytest.mark.parametrize("killed", ["notes", "files"])
def test_killed_at_any_moment_it_is_finished_by_doing_it_again(tmp_path: Path, killed: str) -> None:
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400)
    deliver(realm, 0, 1)
    deliver(realm, 0)
    assert run(tidy_and_die, realm.paths.root, killed) == -signal.SIGKILL
    check(realm)
    tidy(realm, 50)
    assert read(realm, "low") == ([], 3)
    assert len(list(realm.paths.topic(TOPIC, "low").pieces.glob("*.piece"))) == 2, "empty ones, and no others"
    check(realm)


def test_a_hole_without_a_note_is_found(tmp_path: Path) -> None:
    """Removing is no way to hide a hole: notes say how many, signed by the inbox's owner."""
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400)
    deliver(realm, 0, 1)
    tidy(realm, 50)
    for path in (realm.paths.topic(TOPIC, "low").root / "reseals").glob("*"):
        path.unlink()
    found = sealcast("check", TOPIC, "--json", "--realm", realm.paths.root)
    assert found.code == 1, "without its note, an emptied record is a hole"


def test_a_process_of_peers_does_it_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm = a_realm(tmp_path, pieces_kept_s=10 * 86_400)
    publish(realm, [0, 1, 2])
    assert sealcast("peer", "run", "--once", "--realm", realm.paths.root).code == 0
    assert read(realm, "low", from_=0) == ([b"0", b"1"], 0)
    late = realm.clock() + 50 * DAY_US
    once = PeerUpkeep.once
    monkeypatch.setattr(PeerUpkeep, "once", lambda self, topic, name: once(self, topic, name, late))
    ran = sealcast("peer", "run", "--once", "--realm", realm.paths.root)
    assert ran.code == 0 and "which the topic keeps no longer" in ran.err
    assert read(realm, "low") == ([], 2) and host.TIDY_S == 60
    check(realm)


def test_the_commands(tmp_path: Path) -> None:
    realm = a_realm(tmp_path)
    at = ("--realm", realm.paths.root)
    altered = sealcast("topic", "alter", TOPIC, "--keep-pieces", "90d,10GB", "--keep-frames", "5d,1GB", *at)
    assert altered.code == 0, altered.err
    shown = sealcast("topic", "show", TOPIC, *at).out
    assert "in each reader's own inbox" in shown and "in its publishers' own logs" in shown
    assert "nobody can see to it that all of them forget" in sealcast("forget", TOPIC, "--yes", *at).err


def test_publishing_goes_on(tmp_path: Path) -> None:
    realm = a_realm(tmp_path, frames_kept_s=4 * 86_400)
    deliver(realm, 0)
    tidy(realm, 1)
    with Publisher(realm, TOPIC, "ann") as ann:
        ann.publish([Event({"price": 1}, b"x")])
        tidy(realm, 4)
        ann.publish([Event({"price": 1}, b"y")])
    carry(realm, [TOPIC])
    assert read(realm, "low", from_=0)[0] == [b"0", b"x", b"y"]
