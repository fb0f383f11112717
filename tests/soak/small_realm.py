"""A realm of few bytes under one protection, and everything that a user does in it, once: to see what a wrong byte in
one of its files does.

    python -m tests.soak.small_realm make DIR PROTECTION      makes it
    python -m tests.soak.small_realm flip DIR PROTECTION      for each line "FILE FIRST COUNT MASK" on stdin: flips
                                                              so many bytes: what came of it, as a line of JSON

Each flip is tried on a copy of the realm, by a fork of one process that has everything imported. No Spark is needed:
sources, kernels, sinks, peers and clients are the real ones.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sealcast import Event, Publisher, Realm, Schema, Subscriber
from sealcast.errors import Bug, SealcastError
from sealcast.model.protection import PROTECTIONS
from sealcast.protections.attribute.carry import carry
from sealcast.protections.port import witness_side
from tests.clients.pump import pump

TOPIC: Final = "quotes"
SCHEMA: Final = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 3}]})
FILTERS: Final = {"low": "price < 2", "high": "price >= 2"}
#: What each subscriber gets of what was published before, of which it has acknowledged two events; and of what is
#: published after the byte was flipped.
BEFORE: Final = {"low": [b"0", b"1", b"4"], "high": [b"2", b"3"]}
AFTER: Final = {"low": [b"5"], "high": [b"6"]}
ACKNOWLEDGED: Final = 2


def make(root: Path, protection: str, carry_on: Callable[[Realm], None] | None = None) -> None:
    """A realm in which events were published, carried (`carry_on`; without it, by kernels), and read in part."""
    realm = Realm.create(root)
    partitions = {} if PROTECTIONS[protection]().peers else {"partitions": 1}
    realm.create_topic(TOPIC, SCHEMA, protection=protection, **partitions, access="members")
    realm.enrol_many(["ann", *FILTERS])
    for name, text in FILTERS.items():
        realm.subscribe(TOPIC, name, text)
    for numbers in ([0, 1, 2], [3, 4]):
        publish(realm, numbers)
        (carry_on or carried)(realm)
    for name in FILTERS:
        with Subscriber(realm, TOPIC, name) as reader:
            reader.poll(ACKNOWLEDGED)
            reader.ack()


def publish(realm: Realm, numbers: list[int]) -> None:
    prices = {5: 1, 6: 2}
    with Publisher(realm, TOPIC, "ann") as ann:
        ann.publish([Event({"price": prices.get(n, n % 4)}, str(n).encode()) for n in numbers])


def carried(realm: Realm) -> None:
    """Whoever carries the topic's events does so."""
    about = realm.state().topic(TOPIC).protection
    if about.peers:
        carry(realm, [TOPIC])
    elif about.overlay:
        from tests.pipeline.layered_world import LayeredWorld

        world = object.__new__(LayeredWorld)
        world.realm = realm
        assert world.names[0].topic == TOPIC
        world.admit()
        world.drain()
    else:
        pump(realm, TOPIC)


# --- what a user does --------------------------------------------------------------------------------------


def read_all(root: Path) -> object:
    """Everything there is, by those who may read it; their cursors stay."""
    realm, found = Realm(root), {}
    for name in FILTERS:
        with Subscriber(realm, TOPIC, name, from_=0) as reader:
            found[name] = [event.payload for event in reader]
    return found


def go_on(root: Path) -> object:
    """From the cursors on, with two events more."""
    realm, found = Realm(root), {}
    publish(realm, [5, 6])
    carried(realm)
    for name in FILTERS:
        with Subscriber(realm, TOPIC, name) as reader:
            found[name] = [event.payload for event in reader]
            reader.ack()
    return found


def check(root: Path) -> object:
    """The ledger checker. That it finds something is a named error."""
    realm = Realm(root)
    for audit in witness_side(realm.state().topic(TOPIC).protection).audits(realm, TOPIC, by_reference=False):
        report = audit.run(lambda done: None)
        if not report.ok:
            raise Found("; ".join(problem.message for problem in report.problems))
    return None


class Found(SealcastError):
    """What `sealcast check` would print."""


ACTS: Final[dict[str, tuple[Callable[[Path], object], object]]] = {
    "read": (read_all, BEFORE),
    "check": (check, None),
    "go on": (go_on, {name: [*BEFORE[name][ACKNOWLEDGED:], *AFTER[name]] for name in FILTERS}),
    "check again": (check, None),
}


def outcome(root: Path) -> dict[str, Any]:
    """What each act came to: `same`, `late` if the newest events are not seen yet, an error of ours with its message,
    or something that must not be. After an error that names what is wrong, nothing more is tried."""
    found: dict[str, Any] = {}
    for name, (act, due) in ACTS.items():
        try:
            got = act(root)
            found[name] = "same" if got == due else "late" if _begins(due, got) else f"WRONG {got!r}"
        except Bug as error:
            found[name] = f"BUG {error.message} {traceback.format_exc()[-1500:]}"
        except SealcastError as error:
            found[name] = [type(error).__name__, error.message]
            break
        except Exception as error:  # noqa: BLE001
            found[name] = f"UNEXPECTED {type(error).__name__}: {error} {traceback.format_exc()[-1500:]}"
    return found


def _begins(due: object, got: object) -> bool:
    """Whether everybody got the beginning of what is due."""
    return isinstance(due, dict) and isinstance(got, dict) and all(due[n][: len(got[n])] == got[n] for n in due)


# --- flips --------------------------------------------------------------------------------------------------


def flip_all(root: Path) -> None:
    """A fork for each flip, so that nothing that one of them remembers helps or harms another."""
    copy, answers = root.with_name(f"{root.name}-copy-{os.getpid()}"), os.dup(1)
    os.dup2(2, 1)
    shutil.copytree(root, copy)
    whole = outcome(copy)  # imports everything that is needed
    assert set(whole.values()) == {"same"}, whole
    gc.collect()
    _remove(copy)
    gc.freeze()
    for name, first, count, mask in asked():
        flipped(root, copy, name, first, count, mask)
        said = _forked(copy)
        os.write(answers, json.dumps([name, first, count, mask, said]).encode() + b"\n")
        _remove(copy)


def _remove(copy: Path) -> None:
    """SQLite takes its files away itself when its last connection closes, which may be just now."""
    while copy.exists():
        with suppress(FileNotFoundError):
            shutil.rmtree(copy)


def asked() -> Iterator[tuple[str, int, int, int]]:
    """The flips that are asked for on stdin."""
    for line in sys.stdin:
        name, first, count, mask = line.rsplit(" ", 3)
        yield name, int(first), int(count), int(mask)


def flipped(root: Path, copy: Path, name: str, first: int, count: int, mask: int) -> None:
    """Makes a copy of the realm in which some bytes of one file are wrong."""
    shutil.copytree(root, copy)
    raw = bytearray((copy / name).read_bytes())
    for at in range(first, first + count):
        raw[at] ^= mask
    (copy / name).write_bytes(raw)


def _forked(copy: Path) -> dict[str, Any]:
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell, json.dumps(outcome(copy), default=str).encode()[:60_000])
        os._exit(0)
    os.close(tell)
    with os.fdopen(told, "rb") as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said and not status else {"process": f"UNEXPECTED end {status}"}


if __name__ == "__main__":
    _, what, directory, protection = sys.argv
    if what == "make":
        make(Path(directory), protection)
    else:
        from sealcast.control import at_hand
        from sealcast.primitives.pairing import best
        from sealcast.trust.storage import store

        assert at_hand and store
        best()
        flip_all(Path(directory))
