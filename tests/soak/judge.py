"""What a campaign did to the events: lost, doubled, out of order, leaked.

Three judges. What subscribers wrote down against what publishers wrote down; `sealcast check`, which does again what
every broker did; and a search of every file for what only subscribers may see.
"""

from __future__ import annotations

import base64
import mmap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.soak.journal import Published, Received
from tests.soak.world import CANARY, PUBLISHERS, SHARES, Numbers, wanted


@dataclass
class Verdict:
    """About one topic."""

    #: Events whose publication was acknowledged, or that arrived without.
    events: int = 0
    deliveries: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    unexpected: int = 0
    #: Publications of which a killed publisher did not live to know whether they were made, and how many were.
    doubtful: int = 0
    doubtful_made: int = 0
    #: Times that a reader was handed again what it had not acknowledged.
    handed_again: int = 0
    #: Errors that clients met, by their name. Each is one of ours.
    errors: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.out_of_order or self.unexpected or self.findings)

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "errors": dict(self.errors)}


def judge(
    journals: Path,
    topic: str,
    ordered: bool,
    publishers: Sequence[str] = PUBLISHERS,
    subscribers: Sequence[str] | None = None,
) -> Verdict:
    """By default of all who take part in a campaign."""
    verdict, readers = Verdict(), SHARES[topic].subscribers if subscribers is None else subscribers
    published = {name: Published(journals / f"{topic}-publisher-{name}") for name in publishers}
    received = {name: Received(journals / f"{topic}-subscriber-{name}") for name in readers}
    verdict.handed_again = sum(each.again for each in received.values())
    for client in (*published.values(), *received.values()):
        for error in client.errors:
            kind, name = error.split(" ", 1)
            verdict.errors.update([name] if kind == "error" else [])
            verdict.findings += [error] if kind == "UNEXPECTED" else []
    for publisher, sent in published.items():
        got = {name: _numbers(each, publisher) for name, each in received.items()}
        made = _made(sent, got, verdict)
        verdict.events += made.size
        for name, numbers in got.items():
            _compare(verdict, f"{topic}: {name} from {publisher}", numbers, wanted(name, made), ordered)
    return verdict


def _numbers(received: Received, publisher: str) -> Numbers:
    return np.array([number for name, number in received.events if name == publisher], np.int64)


def _made(sent: Published, got: dict[str, Numbers], verdict: Verdict) -> Numbers:
    """What was published: all that was acknowledged, and of what is in doubt as much as anybody got."""
    spans = [range(first, first + count) for first, count in sent.acknowledged]
    everything = np.unique(np.concatenate([*got.values(), np.empty(0, np.int64)]))
    for first, count in sent.doubtful:
        there = everything[(everything >= first) & (everything < first + count)]
        verdict.doubtful += 1
        if there.size:
            verdict.doubtful_made += 1
            # Frames are whole, and in order: what came before the last that arrived was published, too.
            spans.append(range(first, int(there[-1]) + 1))
    return np.sort(np.concatenate([np.arange(s.start, s.stop) for s in spans] or [np.empty(0, np.int64)]))


def _compare(verdict: Verdict, who: str, got: Numbers, due: Numbers, ordered: bool) -> None:
    lost, more = np.setdiff1d(due, got), np.setdiff1d(got, due)
    doubled = got.size - np.unique(got).size
    disordered = int(np.count_nonzero(np.diff(got) < 0)) if ordered else 0
    verdict.deliveries += got.size
    verdict.lost += lost.size
    verdict.unexpected += more.size
    verdict.doubled += doubled
    verdict.out_of_order += disordered
    if lost.size or more.size or doubled or disordered:
        verdict.findings.append(
            f"{who}: lost {lost[:5].tolist()} of {lost.size}, unexpected {more[:5].tolist()} of {more.size}, "
            f"{doubled} twice, {disordered} out of order"
        )


# --- leaks ----------------------------------------------------------------------------------------


def leaks(*directories: Path) -> tuple[int, list[str]]:
    """How many bytes were searched, and the files that hold the beginning of a payload, in any usual spelling."""
    searched, found = 0, list[str]()
    for path in (p for directory in directories for p in sorted(directory.rglob("*"))):
        try:
            if not path.is_file() or not (size := path.stat().st_size):
                continue
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                searched += size
                found += [str(path)] if any(content.find(needle) >= 0 for needle in _spellings(CANARY)) else []
        except (FileNotFoundError, ValueError):
            continue  # it went away meanwhile
    return searched, found


def _spellings(secret: bytes) -> Iterator[bytes]:
    yield from (secret, secret.hex().encode(), secret.hex().upper().encode(), secret.decode().encode("utf-16-le"))
    for shift in range(3):
        # Whole groups of three bytes look the same wherever base64 finds them.
        whole = secret[shift : shift + (len(secret) - shift) // 3 * 3]
        yield from (base64.b64encode(whole), base64.urlsafe_b64encode(whole))
