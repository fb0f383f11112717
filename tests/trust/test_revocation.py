"""Revocation lists: forged, old, missing or turned round they are refused; on disk they survive every crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealcast.errors import Corrupt, RevocationRejected
from sealcast.log import files
from sealcast.trust.certificates import lists, revocation
from sealcast.trust.certificates.authority import Authority
from sealcast.trust.certificates.certificate import Trust
from sealcast.trust.certificates.lists import RevocationDelta
from sealcast.trust.certificates.revocation import NOTHING_REVOKED, Cause, Fetched, RevocationStore
from sealcast.wire import cbor
from tests.trust.certified import NOW, REALM, house
from tests.vectors import make_certificates
from tests.vectors.make_certificates import FIRST, ONE, ROOT, SECOND_ONE, THREE, TWO

pytestmark = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")

VECTORS: dict[str, Any] = json.loads(make_certificates.FILE.read_text())
TRUST = Trust(ROOT, [FIRST, SECOND_ONE], REALM)


def number_of(n: int) -> int:
    """A serial number of the authority that issues in `house`."""
    return (2 << 112) | n + 1


def raws(case: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(one) for one in case]


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS["revocations"], ids=lambda case: case["name"])
def test_each_case_has_its_own_reason(case: dict[str, Any], tmp_path: Path) -> None:
    store = RevocationStore(tmp_path, TRUST)
    store.accept(raws(case["known"]))
    before = store.view
    if case["reason"] is None:
        after = store.accept(raws(case["given"]))
        assert after.number == max([lists.parse(raw).number for raw in raws(case["known"] + case["given"])], default=0)
    else:
        with pytest.raises(RevocationRejected) as refusal:
            store.accept(raws(case["given"]))
        assert refusal.value.reason == case["reason"]
        assert store.view == before
    assert RevocationStore(tmp_path, TRUST).view == store.view


def test_no_single_bit_of_a_list_can_be_flipped() -> None:
    view = NOTHING_REVOKED.follow([ONE], TRUST)
    reasons = set()
    for position in range(8 * len(TWO.raw)):
        bent = bytearray(TWO.raw)
        bent[position // 8] ^= 1 << position % 8
        with pytest.raises(RevocationRejected) as refusal:
            view.follow([lists.parse(bytes(bent))], TRUST)
        reasons.add(str(refusal.value.reason))
    assert reasons >= {"malformed", "algorithm", "signer", "signature", "realm"}


@settings(max_examples=60, deadline=None)
@given(st.permutations([ONE, TWO, THREE]), st.integers(0, 3))
def test_only_the_order_in_which_they_were_made_is_taken(order: list[RevocationDelta], count: int) -> None:
    given_ = order[:count]
    honest = [ONE, TWO, THREE][:count]
    if given_ == honest:
        assert NOTHING_REVOKED.follow(given_, TRUST).number == count
    else:
        with pytest.raises(RevocationRejected) as refusal:
            NOTHING_REVOKED.follow(given_, TRUST)
        assert refusal.value.reason in ("gap", "reordered")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sets(st.integers(0, 30), min_size=1), min_size=1, max_size=8), st.data())
def test_deltas_and_whole_list_come_to_the_same(batches: list[set[int]], data: st.DataObject) -> None:
    authority, plain = house(), set[int]()
    for step, batch in enumerate(batches):
        authority.revoke({number_of(n) for n in batch}, Cause.SUPERSEDED, NOW + step)
        plain |= {number_of(n) for n in batch}
    cut = data.draw(st.integers(0, authority.lists.view.number))
    deltas = [lists.parse(raw) for raw in authority.lists.since(0) or []]
    from_start = NOTHING_REVOKED.follow(deltas, TRUST)
    in_two = NOTHING_REVOKED.follow(deltas[:cut], TRUST).follow(deltas[cut:], TRUST)
    whole = NOTHING_REVOKED.follow([lists.parse(raw) for raw in authority.revocations(0)], TRUST)
    assert from_start == in_two == whole == authority.lists.view
    assert {s for s in map(number_of, range(31)) if from_start.is_revoked(s)} == plain
    assert all(cbor.encode(cbor.decode(d.raw, tags=frozenset({18}))) == d.raw for d in deltas)


# --- fetching -------------------------------------------------------------------------------------


class Counting:
    """An authority behind a wire that counts what goes over it."""

    def __init__(self) -> None:
        self.authority = house()
        self.asked: list[int] = []

    def revoke(self, *numbers: int) -> None:
        self.authority.revoke([number_of(n) for n in numbers], Cause.SUPERSEDED, NOW)

    def revocations(self, since: int) -> list[bytes]:
        self.asked.append(since)
        return self.authority.revocations(since)


def test_after_a_restart_only_what_is_new_is_fetched(tmp_path: Path) -> None:
    source = Counting()
    for n in range(40):
        source.revoke(n)
    first = RevocationStore(tmp_path, TRUST).update(source)
    assert (first.lists, first.whole, first.after) == (1, True, 40), "a newcomer gets the whole list in one piece"
    for n in range(40, 43):
        source.revoke(n)
    restarted = RevocationStore(tmp_path, TRUST)
    assert restarted.view.number == 40 and source.asked == [0], "what is on disk is not asked for"
    fetched = restarted.update(source)
    sizes = [len(raw) for raw in source.authority.revocations(40)]
    assert fetched == Fetched(40, 43, 3, sum(sizes), False)
    assert max(sizes) < 1_000
    assert RevocationStore(tmp_path, TRUST).update(source) == Fetched(43, 43, 0, 0, False)
    assert source.asked == [0, 40, 43]
    assert RevocationStore(tmp_path, TRUST).view.entries == source.authority.lists.view.entries


def test_any_store_can_serve_what_it_holds(tmp_path: Path) -> None:
    source = Counting()
    source.revoke(1)
    near, far = RevocationStore(tmp_path / "near", TRUST), RevocationStore(tmp_path / "far", TRUST)
    near.update(source), far.update(source)
    for n in (2, 3):
        source.revoke(n)
    near.update(source)
    assert near.since(1) == source.authority.revocations(1)
    far.accept(near.since(1) or [])
    assert far.view == near.view
    assert far.since(0) is None, "the first came with the whole list"


def test_what_was_long_ago_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "CATCH_UP", 4)
    monkeypatch.setattr(revocation, "KEPT", 10)
    authority = house()
    store = RevocationStore(tmp_path, TRUST)
    for n in range(40):
        store.accept([authority.revoke([number_of(n)], Cause.SUPERSEDED, NOW + n).raw])
        assert len(list(tmp_path.glob("*.delta"))) < 16
    again = RevocationStore(tmp_path, TRUST)
    assert again.view == authority.lists.view
    assert len(again.since(33) or []) == 7
    assert again.since(5) is None


def test_two_processes_on_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "CATCH_UP", 3)
    monkeypatch.setattr(revocation, "KEPT", 2)
    authority = house()
    one, other = RevocationStore(tmp_path, TRUST), RevocationStore(tmp_path, TRUST)
    for n in range(20):
        store = (one, other)[n % 3 == 0]
        if n == 12:
            authority.revoke([number_of(n)], Cause.SUPERSEDED, NOW + n)
            store.accept(authority.revocations(0))
        else:
            store.accept([authority.revoke([number_of(n)], Cause.SUPERSEDED, NOW + n).raw])
    assert one.refresh() == other.refresh() == authority.lists.view


@pytest.mark.parametrize("known", [0, 3], ids=["the whole list", "lists after the known one"])
@pytest.mark.parametrize("ahead", [0, 2], ids=["as far", "further"])
def test_two_processes_that_fetch_at_once(tmp_path: Path, known: int, ahead: int) -> None:
    """One asks; before it has written down what it got, the other has, and maybe what was made since."""
    source = Counting()
    for n in range(3):
        source.revoke(n)
    one, other = RevocationStore(tmp_path, TRUST), RevocationStore(tmp_path, TRUST)
    if known:
        one.update(source)
    for n in range(3, 6):
        source.revoke(n)

    class Slow:
        def revocations(self, since: int) -> list[bytes]:
            found = source.revocations(since)
            for n in range(10, 10 + ahead):
                source.revoke(n)
            other.refresh()
            other.update(source)
            return found

    fetched = one.update(Slow())
    assert (fetched.before, fetched.after) == (known, 6 + ahead)
    assert one.view == other.view == source.authority.lists.view


def test_a_fork_is_no_list_that_somebody_else_took_in(tmp_path: Path) -> None:
    ours, forked = Counting(), Counting()
    ours.revoke(1)
    forked.revoke(2)
    one, other = RevocationStore(tmp_path, TRUST), RevocationStore(tmp_path, TRUST)

    class Forking:
        def revocations(self, since: int) -> list[bytes]:
            other.accept(ours.authority.lists.since(0) or [])
            return forked.authority.lists.since(0) or []

    with pytest.raises(RevocationRejected):
        one.update(Forking())
    assert one.refresh() == ours.authority.lists.view


# --- crashes and damage ---------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("whole", [False, True], ids=["delta", "whole list"])
@pytest.mark.parametrize("catch_up", [1, 64], ids=["and the list", "alone"])
def test_a_crash_at_any_write_leaves_the_old_or_the_new_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catch_up: int, whole: bool
) -> None:
    monkeypatch.setattr(revocation, "CATCH_UP", catch_up)
    authority = house()
    for n in range(3):
        authority.revoke([number_of(n)], Cause.SUPERSEDED, NOW + n)
    old = authority.revocations(0)
    authority.revoke([number_of(3), number_of(4)], Cause.SUPERSEDED, NOW + 3)
    new = authority.revocations(0) if whole else authority.revocations(3)
    seen, at = set(), 0
    while True:
        directory = tmp_path / str(at)
        store = RevocationStore(directory, TRUST)
        before = store.accept(old)
        killed = _kill_at(at, monkeypatch, lambda store=store: store.accept(new))  # type: ignore[misc]
        after = RevocationStore(directory, TRUST)
        assert after.view in (before, authority.lists.view), f"killed at step {at}"
        seen.add(after.view.number)
        # And it goes on from there.
        after.update(authority)
        assert RevocationStore(directory, TRUST).view == authority.lists.view
        if not killed:
            break
        at += 1
    assert seen == {3, 4} and at >= 4


def _kill_at(step: int, monkeypatch: pytest.MonkeyPatch, run: Any) -> bool:
    """Ends the process before its `step`-th step on the file system, with half of a write done."""
    count = 0

    def counted(real: Any, half: bool = False) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count > step:
                if half and count == step + 1:
                    fd, raw, position = arguments
                    os.pwrite(fd, bytes(raw)[: len(raw) // 2], position)
                raise Killed
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", counted(files.write_all, half=True))
        patch.setattr(files, "sync_data", counted(files.sync_data))
        patch.setattr(files, "sync_directory", counted(files.sync_directory))
        patch.setattr(files.os, "rename", counted(os.rename))
        patch.setattr(files.os, "unlink", counted(os.unlink))
        try:
            run()
        except Killed:
            return True
    return False


def test_killed_for_real(tmp_path: Path) -> None:
    """SIGKILL in the middle of many revocations: whatever was acknowledged is there, and nothing half."""
    script = f"""
import sys
from pathlib import Path
from sealcast.trust.certificates.authority import Authority
from sealcast.trust.certificates.revocation import Cause
authority = Authority.load(Path({str(tmp_path / "authority")!r}))
for n in range(10_000):
    made = authority.revoke([(1 << 112) | n + 1], Cause.SUPERSEDED, {NOW} + n)
    print(made.number, flush=True)
"""
    Authority.generate(REALM, NOW).save(tmp_path / "authority")
    acknowledged = 0
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= acknowledged + 30:
                process.kill()
                break
        rest = process.stdout.read().split()
        process.wait()
        acknowledged = max([int(line), *map(int, rest)])
        view = Authority.load(tmp_path / "authority").lists.view
        assert acknowledged <= view.number <= acknowledged + 1
        assert len(view.entries) == view.number


def test_damage_on_disk_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "CATCH_UP", 2)
    store = RevocationStore(tmp_path, TRUST)
    store.accept([ONE.raw, TWO.raw])
    store.accept([THREE.raw])
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "lock") == [
        *(f"{n:020}.delta" for n in (1, 2, 3)),
        "list",
    ]
    for name in ("list", f"{3:020}.delta"):
        path = tmp_path / name
        good = path.read_bytes()
        for at in range(0, len(good), 37):
            path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            with pytest.raises(Corrupt, match="not as it was written|do not follow") as refusal:
                RevocationStore(tmp_path, TRUST)
            assert "fetched again" in str(refusal.value.hint)
        path.write_bytes(good[:-1])
        with pytest.raises(Corrupt):
            RevocationStore(tmp_path, TRUST)
        path.write_bytes(good)
    assert RevocationStore(tmp_path, TRUST).view == store.view


def test_a_list_missing_on_disk_is_noticed(tmp_path: Path) -> None:
    RevocationStore(tmp_path, TRUST).accept([ONE.raw, TWO.raw, THREE.raw])
    (tmp_path / f"{2:020}.delta").unlink()
    with pytest.raises(Corrupt, match="is missing"):
        RevocationStore(tmp_path, TRUST)


# --- size -----------------------------------------------------------------------------------------


def test_a_hundred_thousand_revoked(tmp_path: Path) -> None:
    authority = house()
    serials = [number_of(n) for n in range(100_000)]
    authority.revoke(serials, Cause.SUPERSEDED, NOW)
    store = RevocationStore(tmp_path, TRUST)
    (whole,) = authority.revocations(0)
    assert len(whole) < 26 * len(serials)
    store.accept([whole])
    view = RevocationStore(tmp_path, TRUST).view
    assert all(view.is_revoked(serial) for serial in serials)
    assert not any(view.is_revoked(number_of(n)) for n in range(100_000, 200_000))
    one = authority.revoke([number_of(100_000)], Cause.SUPERSEDED, NOW + 1)
    assert len(one.raw) < 1_000, "what is new costs what is new"
    assert store.accept([one.raw]).number == 2
    # No linear search hides behind a look-up: it is a dictionary's, in both.
    assert type(view.entries) is type(store.view.entries) is dict
