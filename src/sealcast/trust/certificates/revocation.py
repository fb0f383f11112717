"""Which certificates count no more: numbered lists, each signed, each following the one before.

    delta n   what was revoked since list n - 1, and the digest of delta n - 1        a few hundred bytes
    base n    everything revoked up to n, and the digest of delta n                    for a newcomer, 25 bytes each

The signer's certificate travels along and must lead to the root. Each delta commits to the whole history before it:
left out, exchanged or turned round, it does not follow. Revocation is for good, so lists only grow.

Who may revoke what shows in the number of a certificate (`certificates.issued_by`): an authority revokes what it issued
itself, the root revokes anything. An authority that was revoked signs no further lists. A base is believed whole from
any authority that counts: its signer could do worse than overstate it, namely issue certificates.

`RevocationView` is a value and its rules are pure; the bytes are in `lists`. `RevocationStore` keeps a view on stable
storage:

    DIRECTORY/
      list                              the view up to some number, and its SHA-256
      00000000000000000042.delta        a signed delta, as it came

Every file is written beside its place, synced and renamed into it: a crash at any moment leaves the list before or the
list after. A delta is a file of its own, so a new one costs its own few hundred bytes and not the whole list; now and
then the list catches up, and deltas long before it are let go. Reading verifies the deltas after the list again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol

from sealcast.errors import CertificateRejected, Corrupt, FrameRejected, RevocationRejected, Unavailable
from sealcast.log import files
from sealcast.model.dataclass import dataclass
from sealcast.trust.certificates import lists
from sealcast.trust.certificates.certificate import Certificate, CertificateReason, Trust, generation, issued_by
from sealcast.trust.certificates.lists import BEGINNING, RevocationDelta, RevocationReason, Revoked, refused
from sealcast.trust.certificates.lists import Cause as Cause
from sealcast.wire import cbor

#: The list on disk falls behind by so many deltas at most.
CATCH_UP: Final = 64
#: So many deltas are kept, for whoever is not further behind.
KEPT: Final = 1024

_LIST: Final = "list"
_DELTA: Final = re.compile(r"(\d{20})\.delta", re.ASCII)
_NUMBER, _DIGEST, _TIME = 1, 2, 3
_CHECK_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class RevocationView:
    """Everything revoked up to a number. A value: whoever holds one can rely on it while lists grow."""

    number: int = 0
    digest: bytes = BEGINNING
    at_us: int = 0
    entries: Mapping[int, Revoked] = field(default_factory=dict)

    def is_revoked(self, serial: int) -> bool:
        """One look into a table, however long the list is."""
        return serial in self.entries

    def follow(self, given: Sequence[RevocationDelta], trust: Trust) -> RevocationView:
        """The view after these lists, if each may follow the one before; RevocationRejected, and nothing has changed.

        The table is copied once, however many lists there are.
        """
        entries = dict(self.entries)
        view = RevocationView(self.number, self.digest, self.at_us, entries)
        for each in given:
            _check(view, each, trust, given)
            if each.whole:
                entries = dict(each.entries)
            else:
                # What is revoked stays revoked as of the first time.
                entries.update((s, e) for s, e in each.entries.items() if s not in entries)
            view = RevocationView(each.number, each.digest, each.at_us, entries)
        return view


NOTHING_REVOKED: Final = RevocationView()


def _check(view: RevocationView, given: RevocationDelta, trust: Trust, beside: Sequence[RevocationDelta]) -> None:
    what = f"revocation list {given.number}"
    # (4) this realm's
    if given.realm != trust.realm_id:
        raise refused(RevocationReason.REALM, f"{what} is another realm's")
    # (5) to (7) signed by an authority that counted then and was not revoked since
    signer = _check_signer(view, given, trust)
    # (8) who may revoke what
    own = generation(signer)
    if own and not given.whole and any(issued_by(serial) != own for serial in given.entries):
        raise refused(RevocationReason.SCOPE, f"{what}: {signer.name!r} revokes what it did not issue")
    # (9) to (12) it follows
    if given.number < view.number or (given.number == view.number and not given.whole):
        raise refused(
            RevocationReason.ROLLBACK,
            f"{what} is older than what is known here ({view.number})",
            "fetch the lists after the known one, from another place if this one has no newer",
        )
    if not given.whole and given.number > view.number + 1:
        if any(view.number < other.number < given.number for other in beside):
            raise refused(RevocationReason.REORDERED, f"{what} comes before list {view.number + 1}")
        raise refused(
            RevocationReason.GAP, f"{what}: list {view.number + 1} is missing before it", "fetch the missing lists"
        )
    if given.link != view.digest and not (given.whole and given.number > view.number):
        raise refused(RevocationReason.FORK, f"{what} follows another history than the one known here")
    # (13), (14) nothing is taken back
    if given.at_us < view.at_us:
        raise refused(RevocationReason.TIME, f"{what} was made before the list it follows")
    if given.whole and not view.entries.keys() <= given.entries.keys():
        raise refused(RevocationReason.SHRUNK, f"{what} leaves out what was revoked before")


def _check_signer(view: RevocationView, given: RevocationDelta, trust: Trust) -> Certificate:
    what = f"revocation list {given.number}"
    # A base speaks for itself: one that names its own signer is not believed.
    known = RevocationView(entries=given.entries) if given.whole else view
    try:
        trust.verify_authority(given.signer_der, given.at_us, known)
        signer = trust.verify_authority(given.signer_der, given.at_us, view)
    except CertificateRejected as error:
        if error.reason == CertificateReason.ISSUER_REVOKED:
            raise refused(RevocationReason.SIGNER_REVOKED, f"{what}: who signed it was revoked") from None
        raise refused(RevocationReason.SIGNER, f"{what}: who signed it is no authority here: {error.message}") from None
    if not lists.signed_by(given, signer):
        raise refused(RevocationReason.SIGNATURE, f"{what} was not signed by {signer.name!r}")
    return signer


# --- keeping ----------------------------------------------------------------------------------------


class RevocationSource(Protocol):
    """Where newer lists come from: an authority, or anyone who keeps them."""

    def revocations(self, since: int) -> Sequence[bytes]: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an update brought."""

    before: int
    after: int
    lists: int
    bytes: int
    whole: bool


class RevocationLog:
    """The lists one knows, in memory."""

    def __init__(
        self, trust: Trust, view: RevocationView | None = None, deltas: Mapping[int, bytes] | None = None
    ) -> None:
        """Empty, or what somebody verified before: a view, and the deltas by number that led to it."""
        self.trust = trust
        self._view = NOTHING_REVOKED if view is None else view
        self._deltas: dict[int, bytes] = dict(deltas or {})

    @property
    def view(self) -> RevocationView:
        return self._view

    def since(self, number: int) -> list[bytes] | None:
        """The signed deltas after `number`, in order; None when they are not all here: then the whole list is due."""
        wanted = range(number + 1, self._view.number + 1)
        if any(each not in self._deltas for each in wanted):
            return None
        return [self._deltas[each] for each in wanted]

    def accept(self, raws: Sequence[bytes]) -> RevocationView:
        """Take in lists that follow the known one: all of them, or RevocationRejected and none."""
        given = [lists.parse(raw) for raw in raws]
        with self._held():
            self._keep(given, self._view.follow(given, self.trust))
        return self._view

    def update(self, source: RevocationSource) -> Fetched:
        """Fetch what is newer than what is known here, and nothing else."""
        before = self._view.number
        raws = list(source.revocations(before))
        given = [lists.parse(raw) for raw in raws]
        with self._held():
            new = [each for each in given if not self._overtaken(each, before)]
            self._keep(new, self._view.follow(new, self.trust))
        size = sum(len(raw) for raw in raws)
        return Fetched(before, self._view.number, len(raws), size, any(each.whole for each in given))

    def _overtaken(self, given: RevocationDelta, before: int) -> bool:
        """Whether somebody who shares these lists took in the same one, or a newer one, since `before` was the newest.
        Another one of the same number is a fork, and not overtaken."""
        if not before < given.number <= self._view.number:
            return False
        if given.whole:
            return given.number < self._view.number
        return self._deltas.get(given.number, given.raw) == given.raw

    def append(self, make: Callable[[RevocationView], RevocationDelta | None]) -> RevocationDelta | None:
        """Add the delta that `make` signs after the newest list, if it makes one; nobody else adds one meanwhile."""
        with self._held():
            made = make(self._view)
            if made is not None:
                self._keep([made], self._view.follow([made], self.trust))
        return made

    @contextmanager
    def _held(self) -> Iterator[None]:
        yield

    def _keep(self, given: Sequence[RevocationDelta], view: RevocationView) -> None:
        for each in given:
            if each.whole:
                self._deltas.clear()
            else:
                self._deltas[each.number] = each.raw
        self._view = view


class RevocationStore(RevocationLog):
    """The lists one knows, on stable storage. Any number of processes may share a directory."""

    def __init__(self, directory: Path, trust: Trust) -> None:
        super().__init__(trust)
        self.directory = directory
        files.make_directory(directory)
        self._saved = 0
        self._list_seen: tuple[int, int] | None = None
        self.refresh()

    def refresh(self) -> RevocationView:
        """What other processes have taken in since."""
        self._read_list()
        self._read_deltas()
        return self._view

    @contextmanager
    def _held(self) -> Iterator[None]:
        with files.locked(self.directory / "lock"):
            self.refresh()
            yield

    def _keep(self, given: Sequence[RevocationDelta], view: RevocationView) -> None:
        for each in given:
            if each.whole:
                self._write_list(RevocationView(each.number, each.digest, each.at_us, each.entries))
            else:
                files.replace_file(self._path(each.number), each.raw)
        super()._keep(given, view)
        if view.number - self._saved >= CATCH_UP:
            self._write_list(view)
        self._let_go()

    # --- files --------------------------------------------------------------------------------------

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:020}.delta"

    def _numbers(self) -> list[int]:
        with files.named(self.directory, "reading"):
            found = (_DELTA.fullmatch(path.name) for path in self.directory.iterdir())
            return sorted(int(match[1]) for match in found if match)

    def _read_list(self) -> None:
        path = self.directory / _LIST
        try:
            with files.named(path, "reading"), suppress(FileNotFoundError), path.open("rb") as file:
                about = os.fstat(file.fileno())
                seen = (about.st_ino, about.st_mtime_ns)
                if seen == self._list_seen:
                    return
                view = _read_view(file.read())
                self._list_seen, self._saved = seen, view.number
                if view.number > self._view.number:
                    self._view = view
        except (FrameRejected, RevocationRejected, KeyError, TypeError):
            raise Corrupt(
                f"{path} is not as it was written", hint="remove its directory; the whole list is fetched again"
            ) from None

    def _write_list(self, view: RevocationView) -> None:
        head = {_NUMBER: view.number, _DIGEST: view.digest, _TIME: view.at_us}
        body = cbor.encode({**head, **lists.columns(view.entries)})
        files.replace_file(self.directory / _LIST, body + hashlib.sha256(body).digest())
        self._saved = view.number

    def _read_deltas(self) -> None:
        numbers = self._numbers()
        fresh: list[RevocationDelta] = []
        for number in numbers:
            if number in self._deltas:
                continue
            path = self._path(number)
            try:
                with files.named(path, "reading"):
                    self._deltas[number] = raw = path.read_bytes()
            except Unavailable as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    continue  # let go by another process this moment
                raise
            if number > self._view.number:
                fresh.append(self._parse(path, raw))
        if fresh:
            try:
                self._view = self._view.follow(fresh, self.trust)
            except RevocationRejected as error:
                raise Corrupt(
                    f"{self.directory} holds lists that do not follow each other: {error.message}",
                    hint="remove the directory; the whole list is fetched again",
                ) from None

    def _parse(self, path: Path, raw: bytes) -> RevocationDelta:
        try:
            return lists.parse(raw)
        except RevocationRejected as error:
            raise Corrupt(
                f"{path} is not as it was written: {error.message}", hint="remove it; it is fetched again"
            ) from None

    def _let_go(self) -> None:
        for number in [n for n in self._deltas if n <= self._saved - KEPT]:
            with suppress(FileNotFoundError):
                self._path(number).unlink()
            del self._deltas[number]


def _read_view(raw: bytes) -> RevocationView:
    body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if hashlib.sha256(body).digest() != check:
        raise cbor.refused("another check")
    found = cbor.decode(body, max_bytes=lists.MAX_LIST_BYTES, max_depth=2, max_items=lists.MAX_LIST_ITEMS)
    return RevocationView(found[_NUMBER], found[_DIGEST], found[_TIME], lists.read_columns(found))
