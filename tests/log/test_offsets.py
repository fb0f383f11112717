"""Pinned offsets: what Spark keeps for us is believed only if we wrote it, and used only where it belongs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Corrupt, Misuse
from sealcast.log.entry import Entry
from sealcast.log.ledger import Ledger
from sealcast.log.offsets import MAX_OFFSET, PinnedOffset, Planned, check_continuity
from sealcast.primitives.secrets import Secret

KEY = Secret(bytes(32))
offsets = st.builds(
    PinnedOffset,
    st.lists(st.integers(0, MAX_OFFSET), min_size=1, max_size=5).map(tuple),
    st.integers(0, 2**53 - 1),
)


@given(offset=offsets)
def test_it_survives_sparks_json(offset: PinnedOffset) -> None:
    assert PinnedOffset.from_json(json.loads(json.dumps(offset.to_json(KEY))), KEY) == offset
    assert PinnedOffset.from_cbor(offset.to_cbor()) == offset


@pytest.mark.parametrize(
    "attack",
    [
        lambda body: body["partitions"].__setitem__(0, 7001),
        lambda body: body["partitions"].__setitem__(0, 5.0),
        lambda body: body["partitions"].__setitem__(0, True),
        lambda body: body["partitions"].__setitem__(0, -1),
        lambda body: body["partitions"].__setitem__(0, "5"),
        lambda body: body["partitions"].append(0),
        lambda body: body["partitions"].pop(),
        lambda body: body["partitions"].reverse(),
        lambda body: body["partitions"].clear(),
        lambda body: body.__setitem__("version", 4),
        lambda body: body.__setitem__("version", None),
        lambda body: body.__setitem__("partitions", None),
        lambda body: body.__setitem__("partitions", {"0": 5}),
        lambda body: body.__setitem__("tag", body["tag"][:-2]),
        lambda body: body.__setitem__("tag", "zz" + body["tag"][2:]),
        lambda body: body.__setitem__("tag", ""),
        lambda body: body.__setitem__("tag", None),
        lambda body: body.pop("tag"),
        lambda body: body.pop("version"),
        lambda body: body.__setitem__("extra", 1),
    ],
)
def test_an_offset_altered_by_hand_is_refused(attack) -> None:  # type: ignore[no-untyped-def]
    body = json.loads(json.dumps(PinnedOffset((5, 9), 3).to_json(KEY)))
    attack(body)
    with pytest.raises(Corrupt, match="an offset in Spark's checkpoint was altered"):
        PinnedOffset.from_json(body, KEY)


@pytest.mark.parametrize("body", [None, [], 5, "x", {}, {"partitions": [1]}])
def test_what_is_no_offset_is_refused(body: object) -> None:
    with pytest.raises(Corrupt, match="altered"):
        PinnedOffset.from_json(body, KEY)


def test_an_offset_of_another_topic_is_refused() -> None:
    with pytest.raises(Corrupt, match="its tag is not ours"):
        PinnedOffset.from_json(PinnedOffset((5,), 3).to_json(Secret(b"1" * 32)), KEY)


@pytest.mark.parametrize(("partitions", "version"), [((), 0), ((-1,), 0), ((0,), -1), ((MAX_OFFSET + 1,), 0)])
def test_an_impossible_offset_cannot_be_made(partitions: tuple[int, ...], version: int) -> None:
    with pytest.raises(Misuse):
        PinnedOffset(partitions, version)


def test_what_lies_between_two_offsets() -> None:
    start, end = PinnedOffset((5, 7), 1), PinnedOffset((5, 9, 2), 1)
    assert start.ranges(end) == [(1, 7, 9), (2, 0, 2)]
    assert end.reaches(start) and not start.reaches(end)
    assert not PinnedOffset((9, 9), 0).reaches(start), "a version never goes back"


def _at(offset: int, version: int = 1) -> PinnedOffset:
    return PinnedOffset((offset,), version)


def test_a_batch_must_follow_the_ledger(tmp_path: Path) -> None:
    with Ledger(tmp_path, KEY) as ledger:
        start = PinnedOffset.initial(1)
        assert check_continuity(ledger.last_span(), start, _at(5)) is Planned.NEW
        with pytest.raises(Corrupt, match="would be lost"):
            check_continuity(ledger.last_span(), _at(3), _at(5))
        ledger.commit(Entry("q", 0, start, _at(5)))
        ledger.commit(Entry("q", 1, _at(5), _at(9)))
        assert check_continuity(ledger.last_span(), _at(9), _at(12)) is Planned.NEW
        assert check_continuity(ledger.last_span(), _at(5), _at(9)) is Planned.AGAIN


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        (_at(12), _at(15), "events in between would be lost"),  # the checkpoint was moved forward: silent loss in Spark
        (_at(5), _at(12), "events would be delivered again"),  # an older offset, its tag right, replayed
        (_at(0, 0), _at(5), "events would be delivered again"),
        (_at(5), _at(8), "events would be delivered again"),  # the last batch, but not as it was
        (_at(9, 2), _at(12, 2), "events in between would be lost"),  # another version than was in force
        (_at(9), _at(8), "offsets never go back"),
        (PinnedOffset((9, 0), 1), PinnedOffset((9, 4), 1), "in between would be lost"),
    ],
)
def test_replayed_and_skipped_offsets_are_refused(
    tmp_path: Path, start: PinnedOffset, end: PinnedOffset, says: str
) -> None:
    with Ledger(tmp_path, KEY) as ledger:
        ledger.commit(Entry("q", 0, PinnedOffset.initial(1), _at(5)))
        ledger.commit(Entry("q", 1, _at(5), _at(9)))
        # Each of these passes the MAC: it was ours once. The ledger refuses it nevertheless.
        replayed = PinnedOffset.from_json(start.to_json(KEY), KEY)
        with pytest.raises(Corrupt, match=says) as raised:
            check_continuity(ledger.last_span(), replayed, end)
        assert ledger.end() == 2
        assert raised.value.message.startswith("Spark plans a batch")
