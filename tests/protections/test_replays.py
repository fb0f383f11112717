"""What was published before anybody asked: replays under every protection that has them, against plaintext truth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from sealcast import Event, Publisher, Realm, Right, Schema
from sealcast.clients.replayed import replayed_events
from sealcast.errors import CannotOpen, Misuse, SealcastError
from sealcast.filters import bits
from sealcast.filters.check import fit
from sealcast.filters.evaluate import evaluate
from sealcast.filters.parse import parse
from sealcast.lab import drill
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.replays import READER_SLOT, Replays
from sealcast.model.protection import PROTECTIONS, Searchable, protection_of
from sealcast.model.stages import Admitted, Grouped, GroupSealed
from sealcast.model.subscription import Subscription
from sealcast.protections import recall as recalling
from sealcast.protections.enveloped.hand_on import HandingOn
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.past import SEALED_NOTE
from sealcast.protections.port import AsksOf, client_side
from sealcast.protections.recall import Recalled, recall
from sealcast.protections.searchable.past import may_match, published_tags
from sealcast.protections.searchable.search import SearchIndex
from sealcast.protections.steps import StepName
from sealcast.trust.keys.filter_texts import ASKED_ONCE, BrokerFilters, OwnerFilters
from sealcast.wire import sealed
from sealcast.wire.searching import SealedFilter, SealedRejected, block_size
from tests.cli.shell import sealcast
from tests.clients.pump import pump

TOPIC = "vitals"
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "ward", "type": "string", "max_length": 8},
            {"name": "pulse", "type": "int", "min": 0, "max": 255},
        ]
    }
)
FILTERS = (
    "pulse > 100",
    "ward = 'Hearts' AND pulse BETWEEN 40 AND 90",
    "ward LIKE 'H%' OR pulse = 7",
    "ward IN ('Eyes', 'Hearts') AND NOT pulse < 200",
    "ward = 'nobody'",
)
FOREVER = 1 << 60
REPLAYING = [name for name, kind in PROTECTIONS.items() if "replay" not in kind.lacks]
BLIND = [name for name in REPLAYING if PROTECTIONS[name].readers_hold_key]


def a_realm(directory: Path, protection: str, **settings: Any) -> Realm:
    realm = Realm.create(directory)
    realm.create_topic(TOPIC, SCHEMA, protection=protection_of(protection, settings), access="granted")
    realm.enrol_many(["monitor", "leaver", "nurse", "doctor", "mallory"])
    realm.grant(TOPIC, "monitor", [Right.PUBLISH])
    realm.grant(TOPIC, "leaver", [Right.PUBLISH])
    for reader in ("nurse", "doctor"):
        realm.grant(TOPIC, reader)
    return realm


def publish(realm: Realm, count: int, *, by: str = "monitor", seed: int = 1) -> list[Event]:
    """Random events, in a batch of their own."""
    random = Random(seed)
    events = [
        Event(
            {"ward": random.choice(["Hearts", "Heads", "Eyes"]), "pulse": random.randrange(256)},
            f"{by} {random.getrandbits(64):x}".encode(),
        )
        for _ in range(count)
    ]
    with Publisher(realm, TOPIC, as_=by) as publisher:
        publisher.publish(events)
    pump(realm, TOPIC)
    return events


def truth(events: list[Event], text: str) -> list[bytes]:
    wanted = fit(parse(text), SCHEMA)
    return [event.payload for event in events if evaluate(wanted, dict(event.attributes)) is True]


def asks_of(realm: Realm, reader: str, text: str) -> AsksOf:
    return client_side(realm.state().topic(TOPIC).protection).asks_of_past(realm, TOPIC, reader, text)


def asked(realm: Realm, reader: str, asks: AsksOf, since: int = 1, **more: int) -> Recalled:
    step = MatchingStep.of(StepName(str(realm.paths.root), TOPIC))
    return recall(step, reader, asks, since, FOREVER, **more)


def replayed(realm: Realm, reader: str, text: str) -> list[bytes]:
    found = asked(realm, reader, asks_of(realm, reader, text))
    return opened(realm, found)


def opened(realm: Realm, found: Recalled) -> list[bytes]:
    return [event.payload for event in replayed_events(realm, TOPIC, "broker", found.replayed)]


# --- what matches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", REPLAYING)
def test_a_filter_that_comes_later_gets_exactly_what_is_true(tmp_path: Path, protection: str) -> None:
    """Over two epochs, and also of a publisher that has left since."""
    realm = a_realm(tmp_path / "realm", protection)
    events = [*publish(realm, 40), *publish(realm, 20, by="leaver", seed=2)]
    realm.revoke(TOPIC, "leaver", [Right.PUBLISH])
    realm.rotate(TOPIC)
    events += publish(realm, 40, seed=3)
    for text in FILTERS:
        assert replayed(realm, "nurse", text) == truth(events, text), text
    assert any(truth(events[:60], text) and truth(events[60:], text) for text in FILTERS)


@pytest.mark.parametrize("tag_bits", [0, 4, 32])
def test_tags_decide_nothing(tmp_path: Path, tag_bits: int) -> None:
    realm = a_realm(tmp_path / "realm", "searchable", tag_bits=tag_bits)
    events = publish(realm, 40)
    for text in FILTERS:
        assert replayed(realm, "nurse", text) == truth(events, text), text


def test_tags_of_what_is_kept_dismiss_a_filter_before_any_point_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = a_realm(tmp_path / "realm", "searchable", tag_bits=32)
    events = publish(realm, 30)

    def touched(*arguments: object) -> None:
        raise AssertionError("a point was computed with")

    with monkeypatch.context() as patch:
        patch.setattr(SearchIndex, "add", touched)
        patch.setattr(SearchIndex, "search", touched)
        assert replayed(realm, "nurse", "ward = 'nobody'") == []
        assert replayed(realm, "nurse", "ward = 'nobody' AND pulse >= 0") == [], "one slot is enough"
        with pytest.raises(AssertionError, match="computed with"):
            replayed(realm, "nurse", "ward = 'nobody' OR ward = 'Hearts'")
    assert replayed(realm, "nurse", "ward = 'nobody' OR ward = 'Hearts'") == truth(events, "ward = 'Hearts'")


def test_a_pre_filter_never_dismisses_what_matches(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm", "searchable")
    events = publish(realm, 60)
    blocks = [payload[: block_size(payload)] for payload in _payloads(realm)]
    assert len(blocks) == len(events)
    for text in FILTERS:
        given = asks_of(realm, "nurse", text)(1)
        assert given is not None
        found = SealedFilter.from_text(given)
        for event, block in zip(events, blocks, strict=True):
            if truth([event], text):
                assert may_match(found, published_tags([block], 16))
    assert not may_match(SealedFilter(1, ()), published_tags(blocks, 16)), "what asks for nothing gets nothing"
    assert not may_match(found, published_tags([], 16)), "and nothing matches where nothing is kept"


def _payloads(realm: Realm) -> Iterator[bytes]:
    kept: list[Admitted] = []
    step = MatchingStep.of(StepName(str(realm.paths.root), TOPIC))
    batches = recalling._Batches(step, 1, FOREVER)
    for committed in batches.records():
        kept += [admitted for _, admitted in batches.admitted(committed.entry)]
    return (payload for admitted in kept for payload in admitted.payloads())


# --- who gets it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", REPLAYING)
def test_who_may_not_read_now_gets_nothing(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path / "realm", protection)
    publish(realm, 10)
    asks = asks_of(realm, "nurse", "pulse >= 0")
    assert len(opened(realm, asked(realm, "nurse", asks))) == 10
    realm.revoke(TOPIC, "nurse", [Right.SUBSCRIBE])
    for reader in ("nurse", "mallory", "monitor"):
        with pytest.raises(SealcastError, match="may not subscribe"):
            asked(realm, reader, asks)
    assert [each.reader for each in _notes(realm)] == ["nurse"], "what was refused made nothing"


@pytest.mark.parametrize("protection", REPLAYING)
def test_events_of_epochs_before_a_reader_came(tmp_path: Path, protection: str) -> None:
    """Where brokers seal for readers, it gets them. Where publishers did, it could not open them and gets none."""
    realm = a_realm(tmp_path / "realm", protection)
    before = publish(realm, 10)
    realm.rotate(TOPIC)
    realm.grant(TOPIC, "mallory", [Right.SUBSCRIBE])
    after = publish(realm, 10, seed=2)
    found = asked(realm, "mallory", asks_of(realm, "mallory", "pulse >= 0"))
    blind = protection in BLIND
    assert opened(realm, found) == [event.payload for event in (after if blind else before + after)]
    assert found.closed_epochs == ([1] if blind else [])
    said = sealcast(*_command(realm, "mallory", "pulse >= 0"))
    assert said.code == 0 and ("has no keys of were left out: 1" in said.err) == blind


@pytest.mark.parametrize("protection", BLIND)
def test_who_could_only_publish_in_an_epoch_gets_nothing_of_it(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path / "realm", protection)
    publish(realm, 5)
    realm.rotate(TOPIC)
    realm.grant(TOPIC, "monitor", [Right.PUBLISH, Right.SUBSCRIBE])
    after = publish(realm, 5, seed=2)
    found = asked(realm, "monitor", asks_of(realm, "monitor", "pulse >= 0"))
    assert opened(realm, found) == [event.payload for event in after] and found.closed_epochs == [1]
    with pytest.raises(CannotOpen, match="no key that opens"):
        asked(realm, "monitor", lambda epoch: None)


def test_what_a_reader_sends_is_checked_and_of_use_to_nobody_else(tmp_path: Path) -> None:
    realm = a_realm(tmp_path / "realm", "searchable")
    publish(realm, 10)
    nurses = asks_of(realm, "nurse", "pulse >= 0")
    found = asked(realm, "doctor", nurses)
    assert found.replayed.events == 0, "a filter that another user sealed matches nothing"
    realm.rotate(TOPIC)
    for bad in ("pulse >= 0", "sealed:AAAA", nurses(1)):
        with pytest.raises(SealedRejected):
            asked(realm, "nurse", lambda epoch, bad=bad: bad)  # type: ignore[misc]
    forged = asks_of(realm, "nurse", "pulse = 1")

    def off_the_curve(epoch: int) -> str | None:
        good = SealedFilter.from_text(forged(epoch) or "")
        (((label,),),) = good.conjunctions
        return SealedFilter(epoch, (((label[:5] + bytes(32) + label[37:],),),)).to_text()

    pulses = {event.attributes["pulse"] for event in publish(realm, 200, seed=5)}
    assert 1 in pulses, "so that the tag is there"
    with pytest.raises(SealedRejected, match="not on the curve"):
        asked(realm, "nurse", off_the_curve)


@pytest.mark.parametrize("protection", BLIND)
def test_a_replay_after_a_compromise_is_of_no_use_to_the_thief(
    tmp_path: Path, protection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sealed under the reader's key of the present epoch. Envelopes as they were would open with stolen keys."""
    realm = a_realm(tmp_path / "realm", protection)
    realm.subscribe(TOPIC, "nurse", "pulse >= 0")
    publish(realm, 6)
    thief, then = realm.identity("nurse"), realm.state()
    drill.drill(realm, "nurse")
    side = client_side(then.topic(TOPIC).protection)
    opens = side.opens_with(
        realm.state(), TOPIC, "broker", READER_SLOT, lambda epoch: thief.topic_keys(then, TOPIC, epoch)
    )

    def stolen(found: Recalled) -> int:
        pieces, count = Replays(realm.paths.topic(TOPIC, "broker").root).pieces, 0
        for piece in (sealed.parse(pieces.read(ref.name, ref.digest)) for ref in found.replayed.pieces):
            for event, use in zip(*(rows.tolist() for rows in piece.rows_for(READER_SLOT)), strict=True):
                try:
                    count += bool(opens(piece, event, use))
                except SealcastError:
                    continue
        return count

    asks = asks_of(realm, "doctor", "pulse >= 0")
    found = asked(realm, "doctor", asks)
    assert len(opened(realm, found)) == 6 and stolen(found) == 0

    def bare(admitted: Admitted, events: np.ndarray[Any, np.dtype[np.int64]], sealer: object) -> GroupSealed:
        alone = bits.pack(np.zeros(1, np.int64), np.full(1, READER_SLOT), 1, READER_SLOT + 1)
        before = block_size if protection == Searchable.name else (lambda payload: 0)
        return HandingOn(before).seal(Grouped(admitted, alone, events, np.zeros(events.size, np.int64)))

    monkeypatch.setattr(recalling, "_sealed", bare)
    assert stolen(asked(realm, "doctor", asks)) == 6, "the weaker way, which is why it is not ours"


# --- what is kept of it, and how much it may be ---------------------------------------------------------------


def _notes(realm: Realm) -> list[Any]:
    return list(Replays(realm.paths.topic(TOPIC, "broker").root).all())


def _command(realm: Realm, reader: str, text: str, *more: str) -> tuple[object, ...]:
    asked = ("replay", TOPIC, "--as", reader, "--from", "2020-01-01", "--filter", text)
    return (*asked, *more, "--realm", realm.paths.root)


@pytest.mark.parametrize("protection", REPLAYING)
def test_a_replay_is_on_record_and_a_sealed_filter_stays_its_readers_own(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path / "realm", protection)
    publish(realm, 10)
    text = "pulse >= 0 AND ward <> 'Zanzibar'"
    done = sealcast(*_command(realm, "nurse", text, "--json")).document
    assert len(done["events"]) == 10 and done["next"] is None and done["filter"] == text
    rows = sealcast("audit", "--received", "--json", "--realm", realm.paths.root).document["received"]
    assert [(row["entity"], row["replayed"]) for row in rows if row["replayed"]] == [("nurse", 10)]
    (note,) = _notes(realm)
    files = (path.read_bytes() for path in realm.paths.root.rglob("*") if path.is_file())
    assert not any(b"Zanzibar" in data for data in files), "no file of the realm has it in clear"
    if PROTECTIONS[protection].filters_sealed:
        assert note.filter.startswith(SEALED_NOTE), "it never left its reader"
    else:
        asked = Subscription(ASKED_ONCE, TOPIC, "nurse", note.filter)
        for keys in (OwnerFilters(realm.identity("nurse")), BrokerFilters(realm.broker())):
            assert keys.text(realm.state(), asked) == text
    assert sealcast("check", TOPIC, "--realm", realm.paths.root).code == 0


@pytest.mark.parametrize("protection", REPLAYING)
def test_a_long_replay_says_how_to_go_on_and_loses_nothing(tmp_path: Path, protection: str) -> None:
    realm = a_realm(tmp_path / "realm", protection)
    events = [event for seed in range(5) for event in publish(realm, 4, seed=seed)]
    asks, since, parts = asks_of(realm, "nurse", "pulse >= 0"), 1, list[list[bytes]]()
    while since:
        found = asked(realm, "nurse", asks, since, most=6)
        parts.append(opened(realm, found))
        since = found.next_us or 0
    assert [len(part) for part in parts] == [8, 8, 4], "whole batches"
    assert [payload for part in parts for payload in part] == [event.payload for event in events]
    spans = [(note.from_us, note.to_us) for note in _notes(realm)]
    assert [end for _, end in spans[:-1]] == [begin for begin, _ in spans[1:]], "notes say what was looked through"
    first = sealcast(*_command(realm, "nurse", "pulse >= 0", "--max", "6"))
    assert len(first.lines) == 8 and "there is more" in first.err
    go_on = first.err.split("--from ")[1].split()[0]
    rest = sealcast(*_command(realm, "nurse", "pulse >= 0", "--from", go_on, "--json")).document
    assert len(rest["events"]) == 12 and rest["next"] is None
    with pytest.raises(Misuse, match="one event or more"):
        asked(realm, "nurse", asks, most=0)


@pytest.mark.parametrize("protection", REPLAYING)
def test_what_retention_has_removed_nobody_gets(
    tmp_path: Path, protection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    realm = a_realm(tmp_path / "realm", protection)
    publish(realm, 5)
    kept = publish(realm, 5, seed=2)
    removed, really = realm.paths.topic(TOPIC, "broker").frames(0), EmbeddedLog.start
    monkeypatch.setattr(EmbeddedLog, "start", lambda log: 1 if log.directory == removed else really(log))
    assert replayed(realm, "nurse", "pulse >= 0") == [event.payload for event in kept]
