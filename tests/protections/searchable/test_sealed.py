"""The bytes of sealed filters and blocks: one spelling each, and a reason for everything else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from sealcast.filters.labels import compile as labels
from sealcast.protections.searchable.blocks import TrapdoorBlocks
from sealcast.wire import limits
from sealcast.wire import searching as sealed
from sealcast.wire.searching import SealedFilter, SealedReason, SealedRejected, packed_block, parse_block
from tests.effort import examples
from tests.protections.searchable.world import World

#: Points are not looked at here, so that any bytes after a right head will do.
labels_of_any_kind = st.builds(
    lambda tag, a, b, rest: tag.to_bytes(4, "big") + a + rest[:32] + b + rest[32:],
    st.integers(0, 2**16 - 1),
    st.sampled_from([b"\x02", b"\x03"]),
    st.sampled_from([b"\x02", b"\x03"]),
    st.binary(min_size=80, max_size=80),
)
trapdoors_of_any_kind = labels_of_any_kind.map(lambda label: label[:70])
filters = st.lists(
    st.lists(st.lists(labels_of_any_kind, min_size=1, max_size=4, unique=True), min_size=1, max_size=3),
    max_size=3,
)


def a_filter() -> SealedFilter:
    return World().keys("ana", 7).seal_filter([[[b"a", b"b"], [b"c"]], [[b"d"]]])


@given(filters, st.integers(0, limits.MAX_EPOCH))
@examples(40, soak=200)
def test_filters_are_read_as_they_were_written(conjunctions: list[list[list[bytes]]], epoch: int) -> None:
    whole = [label for slots in conjunctions for slot in slots for label in slot]
    if len(set(whole)) != len(whole):
        return
    made = SealedFilter.of(epoch, conjunctions)
    assert SealedFilter.parse(made.to_bytes(), 16) == made
    assert SealedFilter.from_text(made.to_text(), 16) == made
    assert sorted(made.labels) == sorted(whole)


@given(filters)
@examples(25, soak=100)
def test_the_order_in_which_a_filter_was_written_does_not_show(conjunctions: list[list[list[bytes]]]) -> None:
    whole = [label for slots in conjunctions for slot in slots for label in slot]
    if len(set(whole)) != len(whole):
        return
    turned = [[slot[::-1] for slot in slots[::-1]] for slots in conjunctions[::-1]]
    assert SealedFilter.of(1, turned).to_bytes() == SealedFilter.of(1, conjunctions).to_bytes()


@given(st.lists(trapdoors_of_any_kind, max_size=20))
@examples(40, soak=200)
def test_blocks_are_read_as_they_were_written(trapdoors: list[bytes]) -> None:
    block = packed_block(trapdoors)
    assert parse_block(block, 16) == sorted(set(trapdoors))
    assert sealed.block_size(block + b"an envelope") == len(block)


@given(st.binary(max_size=400))
@examples(60, soak=300)
def test_bytes_of_any_kind_are_read_or_refused(data: bytes) -> None:
    for start, parse in ((b"SF1", SealedFilter.parse), (b"SB1", parse_block), (b"", parse_block)):
        try:
            found = parse(start + data)
        except SealedRejected:
            continue
        again = found.to_bytes() if isinstance(found, SealedFilter) else packed_block(found)
        assert again == start + data


@given(st.lists(st.one_of(st.binary(max_size=160), st.lists(trapdoors_of_any_kind, max_size=5).map(packed_block))))
@examples(60, soak=300)
def test_a_batch_of_blocks_is_read_as_each_alone(blocks: list[bytes]) -> None:
    read = TrapdoorBlocks.read(blocks, 12)
    found: dict[int, list[bytes]] = {event: [] for event in range(len(blocks))}
    for event, offset in zip(read.events.tolist(), read.offsets.tolist(), strict=True):
        found[event].append(read.data[offset : offset + 70])
    for event, block in enumerate(blocks):
        try:
            assert found[event] == parse_block(block, 12)
            assert event not in read.refused
        except SealedRejected as refusal:
            assert read.refused[event].reason == refusal.reason
            assert found[event] == []


HEAD = b"SF1" + (7).to_bytes(8, "big")
LABEL = bytes(4) + b"\x02" + bytes(32) + b"\x03" + bytes(32) + bytes(16)
HIGHER = bytes(4) + b"\x03" + LABEL[5:]
SLOT = b"\x00\x01" + LABEL
ONE = HEAD + b"\x00\x01\x01" + SLOT
FILTERS: dict[str, tuple[SealedReason, bytes]] = {
    "oversize": (SealedReason.OVERSIZE, HEAD + bytes(limits.MAX_SEALED_FILTER_BYTES)),
    "nothing": (SealedReason.MAGIC, b""),
    "another magic": (SealedReason.MAGIC, b"SF2" + ONE[3:]),
    "an epoch that no topic reaches": (SealedReason.EPOCH, b"SF1" + b"\xff" * 8 + ONE[11:]),
    "no count": (SealedReason.TRUNCATED, HEAD),
    "too many conjunctions": (SealedReason.COUNT, HEAD + b"\x00\x41" + 65 * (b"\x01" + SLOT)),
    "a conjunction without slots": (SealedReason.COUNT, HEAD + b"\x00\x01\x00"),
    "too many slots": (SealedReason.COUNT, HEAD + b"\x00\x01\x81" + 129 * SLOT),
    "a slot without labels": (SealedReason.COUNT, HEAD + b"\x00\x01\x01\x00\x00"),
    "too many labels of a slot": (SealedReason.COUNT, HEAD + b"\x00\x01\x01\x10\x01"),
    "too many labels": (SealedReason.COUNT, HEAD + b"\x00\x01\x02\x08\x00" + 2048 * LABEL + b"\x08\x01" + LABEL),
    "more conjunctions than there are": (SealedReason.TRUNCATED, HEAD + b"\x00\x02\x01" + SLOT),
    "more slots than there are": (SealedReason.TRUNCATED, HEAD + b"\x00\x01\x02" + SLOT),
    "more labels than there are": (SealedReason.TRUNCATED, HEAD + b"\x00\x01\x01\x00\x02" + LABEL),
    "a short label": (SealedReason.TRUNCATED, ONE[:-1]),
    "a long label": (SealedReason.TRAILING, ONE + b"\0"),
    "trailing bytes": (SealedReason.TRAILING, ONE + SLOT),
    "labels in another order": (SealedReason.ORDER, HEAD + b"\x00\x01\x01\x00\x02" + HIGHER + LABEL),
    "a label twice": (SealedReason.ORDER, HEAD + b"\x00\x01\x01\x00\x02" + LABEL + LABEL),
    "slots in another order": (SealedReason.ORDER, HEAD + b"\x00\x01\x02\x00\x01" + HIGHER + SLOT),
    "conjunctions twice": (SealedReason.ORDER, HEAD + b"\x00\x02" + 2 * (b"\x01" + SLOT)),
    "a tag of 17 bits": (SealedReason.TAG, ONE.replace(LABEL, b"\x00\x01" + LABEL[2:])),
    "c1 is infinity": (SealedReason.POINT, ONE.replace(LABEL, LABEL[:4] + b"\x00" + LABEL[5:])),
    "c2 is uncompressed": (SealedReason.POINT, ONE.replace(LABEL, LABEL[:37] + b"\x04" + LABEL[38:])),
}


@pytest.mark.parametrize(("reason", "data"), FILTERS.values(), ids=FILTERS)
def test_what_is_no_filter_is_refused_with_the_reason(reason: SealedReason, data: bytes) -> None:
    with pytest.raises(SealedRejected) as refused:
        SealedFilter.parse(data, 16)
    assert refused.value.reason is reason


TRAPDOOR, OTHER = LABEL[:70], HIGHER[:70]
BLOCKS: dict[str, tuple[SealedReason, bytes]] = {
    "nothing": (SealedReason.MAGIC, b""),
    "another magic": (SealedReason.MAGIC, b"SB2\x00\x01" + TRAPDOOR),
    "too many": (SealedReason.COUNT, b"SB1\x20\x01" + 8193 * TRAPDOOR),
    "no count": (SealedReason.TRUNCATED, b"SB1"),
    "half a count": (SealedReason.TRUNCATED, b"SB1\x01"),
    "more than there are": (SealedReason.TRUNCATED, b"SB1\x00\x02" + TRAPDOOR),
    "fewer than there are": (SealedReason.TRAILING, b"SB1\x00\x01" + TRAPDOOR + OTHER),
    "a short trapdoor": (SealedReason.TRUNCATED, b"SB1\x00\x01" + TRAPDOOR[:-1]),
    "a long trapdoor": (SealedReason.TRAILING, b"SB1\x00\x01" + TRAPDOOR + b"\0"),
    "in another order": (SealedReason.ORDER, b"SB1\x00\x02" + OTHER + TRAPDOOR),
    "twice": (SealedReason.ORDER, b"SB1\x00\x02" + TRAPDOOR + TRAPDOOR),
    "a tag of 17 bits": (SealedReason.TAG, b"SB1\x00\x01\x00\x01" + TRAPDOOR[2:]),
    "t1 is infinity": (SealedReason.POINT, b"SB1\x00\x01" + bytes(70)),
    "t2 is uncompressed": (SealedReason.POINT, b"SB1\x00\x01" + TRAPDOOR[:37] + b"\x04" + TRAPDOOR[38:]),
}


@pytest.mark.parametrize(("reason", "data"), BLOCKS.values(), ids=BLOCKS)
def test_what_is_no_block_is_refused_with_the_reason(reason: SealedReason, data: bytes) -> None:
    with pytest.raises(SealedRejected) as refused:
        parse_block(data, 16)
    assert refused.value.reason is reason
    assert TrapdoorBlocks.read([data], 16).refused[0].reason is reason


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("sealed:", ""),
        lambda text: "price > 3",
        lambda text: text + "=",
        lambda text: text[:20] + "*" + text[21:],
        lambda text: text[:20] + "é" + text[21:],
        lambda text: text + "A",
        lambda text: text.replace("_", "/").replace("-", "+") + "\n",
    ],
)
def test_a_text_has_one_spelling(damage: Callable[[str], str]) -> None:
    with pytest.raises(SealedRejected):
        SealedFilter.from_text(damage(a_filter().to_text()))


def test_a_long_text_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(SealedRejected) as refused:
        SealedFilter.from_text("sealed:" + "A" * limits.MAX_SEALED_FILTER_CHARACTERS)
    assert refused.value.reason is SealedReason.OVERSIZE
    assert refused.value.hint and "fewer alternatives" in refused.value.hint


def test_points_off_the_curve_are_refused() -> None:
    good = a_filter()
    good.check_points()
    label = good.conjunctions[0][0][0]
    for at in (5, 38):
        bad = label[:at] + bytes(31) + b"\x05" + label[at + 32 :]
        with pytest.raises(SealedRejected) as refused:
            SealedFilter(1, (((bad,),),)).check_points()
        assert refused.value.reason is SealedReason.POINT


def test_the_largest_filter_that_labels_make_fits() -> None:
    assert labels.MAX_CONJUNCTIONS == limits.MAX_SEALED_CONJUNCTIONS
    assert labels.MAX_LABELS == limits.MAX_SEALED_LABELS
    each = limits.MAX_SEALED_LABELS // limits.MAX_SEALED_CONJUNCTIONS
    numbers = iter(range(limits.MAX_SEALED_LABELS))
    largest = SealedFilter.of(
        1,
        [
            [[next(numbers).to_bytes(4, "big") + LABEL[4:]] for _ in range(each)]
            for _ in range(limits.MAX_SEALED_CONJUNCTIONS)
        ],
    )
    assert len(largest.to_text()) <= limits.MAX_SEALED_FILTER_CHARACTERS
    assert SealedFilter.from_text(largest.to_text()) == largest


def test_too_much_is_not_packed() -> None:
    with pytest.raises(Misuse, match="at most 8192 trapdoors"):
        packed_block(number.to_bytes(4, "big") + TRAPDOOR[4:] for number in range(8193))
    with pytest.raises(Misuse, match="no filter that can be sealed"):
        SealedFilter.of(1, [[[LABEL]]] * 65)
    with pytest.raises(Misuse, match="no filter that can be sealed"):
        SealedFilter.of(1, [[]])
