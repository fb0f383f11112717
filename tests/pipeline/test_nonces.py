"""A batch that is run again may be planned otherwise: no key meets a nonce, and no mask a place, with two plaintexts.

Every encryption and every mask of several workers with different pasts, on the same frames, is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sealcast.broker import path
from sealcast.broker.context import Context
from sealcast.broker.gate import bounds_of
from sealcast.broker.replay import Windows
from sealcast.broker.rulings import received_of, rule_frames
from sealcast.broker.traced import Watch
from sealcast.filters.bits import Indices, Words
from sealcast.groupkeys.catalog import ALGORITHMS, Setting, make
from sealcast.groupkeys.interface import KeyPlan, Planner
from sealcast.groupkeys.mosaic.planner import Mosaic
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.offsets import AS_STAMPED
from sealcast.model.stages import Grouped, Ruled
from sealcast.primitives import aead, labels
from sealcast.protections.endpoint import wraps
from sealcast.protections.endpoint.broker import EndpointStep
from sealcast.protections.endpoint.seal import seal
from sealcast.protections.steps import StepName
from tests.pipeline.crowd import TOPIC, Crowd

SUBSCRIBERS = 40
Book = dict[tuple[bytes, bytes], set[bytes]]


class Recorded:
    """AES-GCM that keeps book: which key met which nonce with which plaintext."""

    book: ClassVar[Book] = {}

    def __init__(self, key: bytes) -> None:
        self._key, self._real = bytes(key), AESGCM(key)

    def encrypt(self, nonce: bytes, plaintext: bytes, aad: bytes | None) -> bytes:
        self.book.setdefault((self._key, bytes(nonce)), set()).add(bytes(plaintext))
        return self._real.encrypt(nonce, plaintext, aad)

    def decrypt(self, nonce: bytes, ciphertext: bytes, aad: bytes | None) -> bytes:
        return self._real.decrypt(nonce, ciphertext, aad)


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    kept: Book = {}
    monkeypatch.setattr(Recorded, "book", kept)
    monkeypatch.setattr(aead, "AESGCM", Recorded)
    real = labels.mask_many

    def mask_many(keys: Iterable[bytes], places: Iterable[bytes], purpose: bytes, hidden: Any) -> list[bytes]:
        under, where = list(keys), list(places)
        for key, place, row in zip(under, where, hidden, strict=True):
            kept.setdefault((b"mask" + key, purpose + place), set()).add(row.tobytes())
        return real(under, where, purpose, hidden)

    monkeypatch.setattr(wraps.labels, "mask_many", mask_many)
    return kept


class Delivered:
    """A planner in a world in which everything is delivered: it comes to rely on all that it handed out."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def plan(self, groups: Words, group_of: Indices | None = None) -> KeyPlan:
        return self._planner.plan(groups, group_of)


def frames(crowd: Crowd) -> list[Grouped]:
    """Each frame of the log as a batch of its own, up to the point where it is sealed."""
    at = worker(crowd)
    log = EmbeddedTopic(crowd.realm.paths.topic(TOPIC).frames_root, 1)
    end = log.partition(0).end()
    about = crowd.realm.state().topic(TOPIC)
    codes = rule_frames(Windows(bounds_of(about)), log, [(0, 0, end)], at.gate, AS_STAMPED, 0)
    found = []
    for offset in range(end):
        received = received_of(0, list(log.partition(0).read(offset, offset + 1)), AS_STAMPED)
        found.append(path._begin(Ruled(received, codes[0][offset : offset + 1]), at, Watch()))
    log.close()
    return found


def worker(crowd: Crowd) -> Context:
    return EndpointStep(StepName(str(crowd.realm.paths.root), TOPIC)).at(crowd.realm.registry.version())


def pasts() -> dict[str, tuple[Callable[[], Planner], list[int]]]:
    """Planners, and which frames each of them handles: all; from the middle on; in another order; some twice."""
    everything = list(range(8))
    found: dict[str, tuple[Callable[[], Planner], list[int]]] = {
        name: (lambda name=name: make(name, Setting(SUBSCRIBERS, 24, 5)), everything)  # type: ignore[misc]
        for name in ALGORITHMS
    }
    for tile in (4, 5):
        for label, order in (("all", everything), ("half", everything[4:]), ("twice", [3, 0, 5, 5, 7, 7, 1, 2])):
            found[f"mosaic, tiles of {tile}, {label}"] = (
                lambda tile=tile: Mosaic(SUBSCRIBERS, 30_000, tile=tile),  # type: ignore[misc]
                order,
            )
    return found


def test_no_key_meets_a_nonce_with_two_plaintexts_whatever_is_remembered(tmp_path: Path, book: Book) -> None:
    crowd = Crowd(tmp_path, SUBSCRIBERS)
    names, rng = list(crowd.wishes), crowd.rng
    crowd.want({g: rng.sample(names, rng.randint(1, SUBSCRIBERS)) for g in range(1, 40)})
    for _ in range(8):
        crowd.publish(rng.choices(range(1, 40), k=30))
    batches, kinds = frames(crowd), set[int]()
    before = len(book)
    for planner, order in pasts().values():
        memory, at = Delivered(planner()), worker(crowd)
        for number in order:
            sealed = seal(batches[number], memory, at.sealing.sealer)
            kinds |= set(np.unique(sealed.keys["key_kind"]).tolist())
    assert len(book) - before > 5_000 and kinds == {0, 1, 2, 3}
    assert any(key.startswith(b"mask") for key, _ in book)
    assert all(len(plaintexts) == 1 for plaintexts in book.values())


def test_the_book_would_tell(book: Book) -> None:
    key = Recorded(bytes(32))
    key.encrypt(bytes(12), b"one", None)
    key.encrypt(bytes(12), b"other", None)
    assert [len(plaintexts) for plaintexts in book.values()] == [2]
