"""Where secrets and contents must never be: plans, event logs, pages, logs, checkpoints, environments, exceptions.

A whole run in a process of its own keeps all that it shows to anybody (watched.py); then every byte of that, of what
the topic has on disk, and of what the process said is searched for every secret of the realm in every spelling.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import re2
from pyspark import cloudpickle

from sealcast.clients.publisher import Publisher
from sealcast.errors import Misuse, NotFound
from sealcast.filters.check import fit
from sealcast.filters.labels import label_filter
from sealcast.filters.parse import parse
from sealcast.lab.attacks import Insider
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model import Event, Position, Schema
from sealcast.primitives import aead, kdf
from sealcast.primitives.aead import SealingKey
from sealcast.primitives.curve import ORDER
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from sealcast.protections.endpoint import keys
from sealcast.protections.frame_steps import MatchingStep
from sealcast.protections.port import client_side
from sealcast.protections.searchable.halves import BrokerHalves
from sealcast.protections.searchable.keys import user_keys
from sealcast.protections.searchable.table import SealedIndexes
from sealcast.protections.steps import StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.vault import keyfile, unlock
from sealcast.wire.records import RecordCodec
from tests.pipeline.drivers import ROOT

#: A start of Spark, its pages and its debug log, on a machine that may be busy with other things.
pytestmark = pytest.mark.timeout(600)

PAYLOAD = b"CANARY-PAYLOAD-6f1d"
SYMBOL = "CANARY-ATTRIBUTE-77a2"
#: Numbers travel as eight bytes, and are told in digits.
PRICE = 7_351_946_028_173_645
#: Outside its domain: a refusal must not tell it either.
REFUSED = 9_002_199_254_740_881
SCHEMA = Schema.from_json(
    {
        "attributes": [
            {"name": "symbol", "type": "string", "max_length": 40},
            {"name": "price", "type": "int", "max": 9_000_000_000_000_000},
        ]
    }
)
FILTERS = {
    "alice": "symbol LIKE 'CANARY%'",
    "bob": "price > 0 AND symbol LIKE '%7a2'",
    "eve": "symbol = 'something else'",
}
#: One where brokers read, one where they match what they cannot read.
PROTECTIONS = ["endpoint", pytest.param("searchable", marks=pytest.mark.soak)]


@pytest.fixture(scope="module", params=PROTECTIONS)
def watched(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[Realm, Path, bytes]:
    """The realm, what the run left in `out`, and what it said."""
    root = tmp_path_factory.mktemp("canaries")
    realm, out = make_realm(root / "realm", request.param), root / "out"
    out.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.watched", str(realm.paths.root), str(out)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    asked = realm.paths.root / "publish-more"
    while process.poll() is None and not asked.exists():
        time.sleep(0.05)
    if asked.exists():
        publish(realm, 1)
        asked.unlink()
    said = b"".join(process.communicate(timeout=500))
    assert process.returncode == 0, said.decode()[-3000:]
    return realm, out, said


def make_realm(directory: Path, protection: str = "endpoint") -> Realm:
    """With events in its log: three that are admitted, one that is refused, and frames that are none."""
    realm = Realm.create(directory)
    about = realm.create_topic("quotes", SCHEMA, protection=protection, access="members")
    realm.enrol_many(["nyse", *FILTERS])
    client_side(about.protection).subscribe_many(
        realm, "quotes", [(name, text, None) for name, text in FILTERS.items()]
    )
    publish(realm, 2)
    with Publisher(realm, "quotes", "nyse") as nyse:
        nyse.publish([Event({"symbol": "quiet"})])
    state, insider = realm.state(), Insider.of(realm, "quotes", "nyse")
    off = RecordCodec(SCHEMA).encode([{"symbol": SYMBOL, "price": REFUSED}], [PAYLOAD])
    with EmbeddedTopic(realm.paths.topic("quotes").frames_root) as log:
        refused = insider.sealer(state.topic("quotes")).seal_messages(off, time.time_ns() // 1000)
        log.partition(0).append([refused, b"no frame"])
    return realm


def publish(realm: Realm, count: int) -> None:
    with Publisher(realm, "quotes", "nyse") as nyse:
        nyse.publish([Event({"symbol": SYMBOL, "price": PRICE}, PAYLOAD)] * count)


# --- the search ---------------------------------------------------------------------------------


def test_nothing_that_spark_or_we_show_has_a_secret_in_it(watched: tuple[Realm, Path, bytes]) -> None:
    realm, out, said = watched
    assert said == b"", "and it said nothing at all"
    files = [path for path in out.rglob("*") if path.is_file()]
    assert realm.state().incarnation("quotes", "broker"), "keys of a run are among what is looked for"
    _assert_complete(out, files)
    assert found(files, spellings(realm)) == []


def test_nothing_that_a_realm_has_on_disk_has_a_secret_in_it(watched: tuple[Realm, Path, bytes]) -> None:
    """Key files among it: a realm that is copied or backed up reveals no key."""
    realm, *_ = watched
    topic = realm.paths.topic("quotes").root
    files = [path for path in realm.paths.root.rglob("*") if path.is_file()]
    assert {realm.paths.broker_key, realm.paths.entity_key("alice"), realm.paths.registry} <= set(files)
    names = {path.relative_to(topic).parts[0] for path in files if path.is_relative_to(topic)}
    assert {"frames", "pieces", "ledger", "checkpoint"} <= names
    assert found(files, spellings(realm)) == []


def test_the_search_finds_what_is_there(watched: tuple[Realm, Path, bytes], tmp_path: Path) -> None:
    """Every needle, wherever it stands in a line, a page, a pickle, a base64 text or a compressed file."""
    realm, *_ = watched
    needles = spellings(realm)
    assert len(needles) > 100
    planted = tmp_path / "planted"
    for needle, what in needles.items():
        planted.write_bytes(b"a line before\n<td>" + needle + b"</td>")
        assert what in found([planted], needles)
    raw = realm.broker().journal_key(realm.state().topic("quotes").id).reveal()
    for hidden in (
        pickle.dumps({"key": raw}),
        base64.b64encode(b"x" + raw + b"y"),
        base64.b64encode(b"xy" + raw),
        zlib.compress(b"before " + raw),
        repr(raw).encode(),
        json.dumps({"key": list(raw)}).encode(),
        str([byte - 256 if byte > 127 else byte for byte in raw]).encode(),
    ):
        planted.write_bytes(hidden)
        assert found([planted], needles), hidden


def _assert_complete(out: Path, files: Iterable[Path]) -> None:
    """The search is worth what was there to be searched."""
    names = {path.name for path in files}
    assert {"plan-streaming", "plan-batch", "progress", "metrics", "conf", "spark.log", "python.log"} <= names
    assert {"exception-frames", "exception-broker", "exception-alice", "exception-user"} <= names
    for name, kind in (("frames", "Corrupt"), ("broker", "Corrupt"), ("alice", "Corrupt"), ("user", "ValueError")):
        assert kind in (out / f"exception-{name}").read_text()
    events = next(path for path in out.iterdir() if path.name.startswith("local-")).read_text()
    assert "SQLExecutionStart" in events and "MicroBatchScan" in events and "QueryProgressEvent" in events
    assert "DEBUG" in (out / "spark.log").read_text() and "Command to send" in (out / "python.log").read_text()
    for moment in ("running", "after"):
        pages = [path.read_text() for path in sorted(out.glob(f"ui-{moment}-*"))]
        assert len(pages) > 15 and sum("MicroBatchScan" in page for page in pages) > 1
        assert "sealcast" in (out / f"processes-{moment}").read_text(errors="replace")
        assert (out / f"home-{moment}" / "local").is_dir()
    assert any("sealcast-pieces" in page or "PiecesSink" in page for page in pages)
    assert re.search(r"sealcast_admitted_total\{[^}]*\} 3\.0", (out / "metrics").read_text())


def found(files: Iterable[Path], needles: dict[bytes, str]) -> list[str]:
    """Which needles are in which files, also in those that are compressed."""
    options = re2.Options()
    options.encoding, options.max_mem = re2.Options.Encoding.LATIN1, 1 << 30
    pattern = re2.compile(b"|".join(map(re2.escape, sorted(needles, key=len, reverse=True))), options)
    hits = set()
    for path in files:
        for part in (path.read_bytes(), *_inflated(path)):
            hits |= {needles[match.group()] for match in pattern.finditer(part)}
    return sorted(hits)


def _inflated(path: Path) -> Iterator[bytes]:
    raw = path.read_bytes()
    for at in range(min(64, len(raw))):
        try:
            yield zlib.decompressobj().decompress(raw[at:])
        except zlib.error:
            continue


# --- what is searched for -----------------------------------------------------------------------


def spellings(realm: Realm) -> dict[bytes, str]:
    """Every secret and all content of the realm, raw and as people and programs write bytes down."""
    needles = dict[bytes, str]()
    for raw, what in secrets_of(realm):
        for spelling in written(raw):
            needles.setdefault(spelling, what)
    for text in (SYMBOL, str(PRICE), str(REFUSED)):
        needles[text.encode()] = f"attribute {text}"
    for number in (PRICE, REFUSED):
        needles[number.to_bytes(8, "little")] = needles[number.to_bytes(8, "big")] = f"attribute {number}"
    return needles


def secrets_of(realm: Realm) -> Iterator[tuple[bytes, str]]:
    yield PAYLOAD, "payload"
    yield SYMBOL.encode(), "attribute"
    yield from unlocked(realm.paths.root)
    topic, broker = realm.state().topic("quotes"), realm.broker()
    ours = broker.topic_keys(realm.state(), topic)
    incarnations = {b"", *realm.state().topic_state("quotes").incarnations.values()}
    for incarnation in incarnations:
        yield from sealed_with(ours, incarnation)
    yield broker.journal_key(topic.id).reveal(), "journal key"
    if topic.protection.filters_sealed:
        yield from searched_with(realm, ours)


def sealed_with(ours: TopicKeys, incarnation: bytes) -> Iterator[tuple[bytes, str]]:
    secret = ours.content_root("broker", incarnation)
    yield secret.reveal(), "topic secret"
    yield kdf.derive(secret, b"content").reveal(), "secret of content keys"
    for entity in ("nyse", *FILTERS):
        pair = ours.mailbox_key(entity, "broker", incarnation)
        yield pair.reveal(), f"pair key of {entity}"
        for use in (b"body", b"wrap"):
            yield kdf.derive(pair, use).reveal(), f"{use.decode()} key of {entity}"
    nonces = [aead.nonce(Position(0, offset, row)) for offset in range(8) for row in range(2)]
    for number, key in enumerate(keys.content_keys(secret, nonces)):
        yield key, f"content key {number}"


def searched_with(realm: Realm, ours: TopicKeys) -> Iterator[tuple[bytes, str]]:
    """What belongs to matching ciphertexts, and what readers asked for."""
    for entity in ("nyse", *FILTERS):
        given, half = realm.identity(entity).topic_keys(realm.state(), "quotes"), ours.search_half(entity)
        assert given.search is not None and given.content is not None
        yield given.search.half.packed, f"half of {entity}"
        yield half.packed, f"broker's half of {entity}"
        yield given.content.of_publisher(entity).reveal(), f"content key of publisher {entity}"
    x = (given.search.half.reveal() + half.reveal()) % ORDER
    yield x.to_bytes(32, "big"), "master exponent"
    search = given.search.search
    yield search.reveal(), "search secret"
    for use in (b"sigma", b"tag"):
        yield kdf.derive(search, use).reveal(), f"key of {use.decode()}s"
    yield given.content.to_bytes()[1:], "content key"
    for name, text in FILTERS.items():
        yield text.encode(), f"filter of {name}"
        for slots in label_filter(fit(parse(text), SCHEMA), SCHEMA).conjunctions:
            for label in (label for slot in slots.slots for label in slot):
                yield label, f"label that {name} asked for"


def unlocked(root: Path) -> Iterator[tuple[bytes, str]]:
    """What is sealed in the key files, and what unlocks them."""
    key = unlock.for_writing().key
    yield key.reveal(), "unlock key"
    for path in root.rglob("*.key"):
        body = keyfile.read(path, keyfile.look(path).kind, NotFound(str(path)))
        for name, value in body.items():
            if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
                yield bytes.fromhex(value), f"{path.name}: {name}"


def written(raw: bytes) -> Iterator[bytes]:
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield repr(raw)[2:-1].encode()
    yield ", ".join(map(str, raw)).encode()
    yield ", ".join(str(byte - 256 if byte > 127 else byte) for byte in raw).encode()
    for shift in range(3):  # base64 of something that contains it: the characters that depend on it alone
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            first, end = -(-8 * shift // 6), 8 * (shift + len(raw)) // 6
            yield encode(bytes(shift) + raw)[first:end]


# --- nothing leaves a process by accident -------------------------------------------------------


def _handles(directory: Path, protection: str) -> dict[str, object]:
    realm = make_realm(directory, protection)
    worker = MatchingStep.of(StepName(str(realm.paths.root), "quotes")).at(realm.registry.version())
    topic = StepName(str(directory), "quotes").open()
    found: dict[str, object] = {
        "secret": Secret.random(),
        "sealing key": SealingKey(Secret.random(), b""),
        "signing key": SigningKey.generate(),
        "broker": realm.broker(),
        "center": realm.center(),
        "identity": realm.identity("alice"),
        "topic": topic,
        "ledger": topic.ledger,
        "gate": worker.gate,
        "context": worker,
    }
    if protection == "endpoint":
        return found | {"sealer": worker.sealing.sealer}  # type: ignore[attr-defined]
    state, alice = realm.state(), realm.identity("alice")
    about, given = state.topic("quotes"), alice.topic_keys(state, "quotes")
    return found | {
        "content key": given.content,
        "user's part": given.search,
        "user's keys": user_keys(given, about, about.epoch, "alice"),
        "broker's half": realm.broker().topic_keys(state, about).search_half("alice"),
        "broker's halves": BrokerHalves(state, about, realm.broker()),
        "indexes": SealedIndexes(realm.broker(), about),
        "index": worker.table.index,
    }


both = pytest.mark.parametrize("protection", ["endpoint", "searchable"])


@both
def test_no_handle_to_a_secret_can_be_pickled_copied_or_captured(tmp_path: Path, protection: str) -> None:
    for name, handle in _handles(tmp_path / "realm", protection).items():
        ways: list[Callable[[], object]] = [
            lambda handle=handle: pickle.dumps(handle),  # type: ignore[misc]
            lambda handle=handle: cloudpickle.dumps(handle),  # type: ignore[misc]
            lambda handle=handle: cloudpickle.dumps(lambda batches: (handle, batches)),  # type: ignore[misc]
            lambda handle=handle: copy.deepcopy(handle),  # type: ignore[misc]
        ]
        for way in ways:
            with pytest.raises((Misuse, pickle.PicklingError, TypeError, AttributeError)):
                way()
                pytest.fail(f"{name} got out")


@both
def test_no_handle_to_a_secret_tells_it_when_it_is_printed(tmp_path: Path, protection: str) -> None:
    handles = _handles(tmp_path / "realm", protection)
    needles = spellings(Realm(tmp_path / "realm"))
    told = tmp_path / "told"
    told.write_text("".join(f"{handle!r} {handle} {handle:}" for handle in handles.values()))
    assert found([told], needles) == []
