"""Where secrets and payloads must never be: plans, event logs, checkpoints, logs, environments, exceptions.

A whole run in a process of its own, with Spark's event log turned on, writes all it writes into one directory; then
every byte there, and everything the process said, is searched for every secret of the realm in every spelling.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from sealcast.clients.publisher import Publisher
from sealcast.model import Event, Schema
from sealcast.primitives.secrets import Secret
from sealcast.trust.deployment import Realm

PAYLOAD = b"CANARY-PAYLOAD-6f1d"
SYMBOL = "CANARY-ATTRIBUTE-77a2"
_RUN = """
import os, pathlib, shutil, sys
from sealcast.pipeline import run, session

realm, out = sys.argv[1], pathlib.Path(sys.argv[2])
extra = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(out), "spark.eventLog.compress": "false",
         "spark.eventLog.rolling.enabled": "false", "spark.ui.enabled": "false"}
spark = session.session("local[1]", extra=extra, short_lived=True)
spark.sparkContext.setLogLevel("INFO")
run.run(realm, once=True, spark=spark)
options = {"realm": realm, "topic": "quotes", "as": "alice"}
opened = spark.read.format("sealcast").options(**options).load()
assert opened.count() == 2
plan = opened._jdf.queryExecution().toString() + opened._jdf.queryExecution().debug().toString()
(out / "plan").write_text(plan)
(out / "conf").write_text(spark.sparkContext._jsc.sc().conf().toDebugString())
# A failure, too: what Spark and we say of it must be clean.
key = pathlib.Path(realm, "entities", "alice.key")
key.write_text(key.read_text().replace('"', "'"))
try:
    spark.read.format("sealcast").options(**options).load().collect()
except Exception as error:
    (out / "exception").write_text(repr(error) + str(error))
home = pathlib.Path(spark.sparkContext.getConf().get("spark.local.dir")).parent
for name in ("spark.log", "jvm.out"):
    shutil.copy(home / name, out / name)
processes = [p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()]
def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
ours = [p for p in processes if str(home).encode() in read(p / "cmdline") + read(p / "environ")]
(out / "environments").write_bytes(b"".join(read(p / "environ") + read(p / "cmdline") for p in ours))
"""


def test_no_secret_and_no_payload_outside_of_where_they_belong(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic("quotes", Schema.from_json({"attributes": [{"name": "symbol", "type": "string"}]}))
    realm.enrol_many(["nyse", "alice"])
    realm.subscribe("quotes", "alice", f"symbol = '{SYMBOL}'")
    with Publisher(realm, "quotes", "nyse") as publisher:
        publisher.publish(Event({"symbol": SYMBOL}, PAYLOAD) for _ in range(2))
    canaries = dict(spellings(realm))

    out = tmp_path / "out"
    out.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(realm.paths.root), str(out)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert (done.stdout, done.stderr) == (b"", b"")

    checkpoint = realm.paths.topic("quotes").checkpoint
    searched = [path for root in (out, checkpoint) for path in root.rglob("*") if path.is_file()]
    names = {path.name for path in searched}
    assert {"plan", "conf", "exception", "spark.log", "environments", "metadata"} <= names
    assert any("local-" in name or "app-" in name for name in names), "the event log is there"
    events = next(path for path in searched if "local-" in path.name).read_text()
    assert "SQLExecutionStart" in events and "MapInArrow" in events, "and tells of our queries"
    for path in searched:
        text = path.read_bytes()
        for canary, what in canaries.items():
            assert canary not in text, f"{what} in {path.name}"

    # The search itself finds what is there: the filter stands in the registry, and secrets in their own files.
    assert SYMBOL.encode() in realm.paths.registry.read_bytes() + wal(realm)
    assert any(canary in realm.paths.broker_key.read_bytes() for canary in canaries)
    # And what lies at rest besides them is sealed.
    topic = realm.paths.topic("quotes").root
    for path in [*topic.rglob("*.seg"), *topic.rglob("*.piece")]:
        for part in (path.read_bytes(), *inflated(path)):
            for canary, what in canaries.items():
                assert canary not in part, f"{what} in {path.name}"


def spellings(realm: Realm) -> Iterator[tuple[bytes, str]]:
    """Every secret of the realm, raw and as people write bytes down."""
    for path in (realm.paths.broker_key, *realm.paths.entities.glob("*.key")):
        for name, value in json.loads(path.read_text()).items():
            if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
                yield from _written(bytes.fromhex(value), f"{path.name}:{name}")
    topic, broker = realm.state().topic("quotes"), realm.broker()
    for entity in ("nyse", "alice"):
        yield from _written(_raw(broker.pair_key(topic.id, topic.epoch, entity)), f"pair key of {entity}")
    yield from _written(_raw(broker.topic_secret(topic.id, topic.epoch)), "topic secret")
    yield from _written(_raw(broker.journal_key(topic.id)), "journal key")
    yield from _written(PAYLOAD, "payload")
    yield SYMBOL.encode(), "attribute"


def _raw(secret: Secret) -> bytes:
    return secret.reveal()


def _written(raw: bytes, what: str) -> Iterator[tuple[bytes, str]]:
    yield raw, what
    yield raw.hex().encode(), f"{what} in hexadecimal"
    yield raw.hex().upper().encode(), f"{what} in hexadecimal"
    yield base64.b64encode(raw).rstrip(b"="), f"{what} in base64"
    yield base64.urlsafe_b64encode(raw).rstrip(b"="), f"{what} in base64"


def wal(realm: Realm) -> bytes:
    path = realm.paths.registry.with_name("registry.sqlite-wal")
    return path.read_bytes() if path.exists() else b""


def inflated(path: Path) -> Iterator[bytes]:
    """Should it ever be compressed, the search must see through it."""
    raw = path.read_bytes()
    for at in range(min(64, len(raw))):
        try:
            yield zlib.decompressobj().decompress(raw[at:])
        except zlib.error:
            continue
