"""Traces across publish, admit, match, seal, deliver and open: one for each call, and readable for whom it concerns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from sealcast.clients.publisher import Publisher
from sealcast.clients.realm import side_of
from sealcast.clients.subscriber import Subscriber
from sealcast.errors import Misuse
from sealcast.model import Event, Schema
from sealcast.pipeline import run
from sealcast.telemetry.traces import Traces
from sealcast.trust.deployment import Realm
from tests.telemetry.recorder import Recorder, files_with, forms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUBLISHER, READER, WARD = "gauge-seven", "harbour-master", "ward-of-secrets"
TOPICS = {"levels": "endpoint", "sealed-levels": "payload", "blind-levels": "searchable"}


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    from sealcast.model.protection import PROTECTIONS

    realm = Realm.create(tmp_path / "realm")
    schema = Schema.from_json(
        {
            "attributes": [
                {"name": "level", "type": "int", "min": 0, "max": 100},
                {"name": "ward", "type": "string", "max_length": 16},
            ]
        }
    )
    realm.enrol_many([PUBLISHER, READER])
    for topic, name in TOPICS.items():
        realm.create_topic(topic, schema, access="members", protection=PROTECTIONS[name]())
        side_of(realm, topic).subscribe_many(realm, topic, [(READER, "level >= 3", None)])
    return realm


def publish(realm: Realm, topic: str, traces: Traces | None, *levels: int) -> None:
    with Publisher(realm, topic, PUBLISHER, traces=traces) as publisher:
        publisher.publish(Event({"level": level, "ward": WARD}, b"%d" % level, "text/plain") for level in levels)


def test_one_trace_goes_from_publisher_to_subscriber(spark: SparkSession, realm: Realm, tmp_path: Path) -> None:
    at_publisher, at_broker, at_reader = Recorder(), Recorder(), Recorder()
    for topic in TOPICS:
        publish(realm, topic, at_publisher, 1, 5, 7)
        publish(realm, topic, None, 9)
    run.run(realm, once=True, spark=spark, traces=at_broker)
    for topic in TOPICS:
        with Subscriber(realm, topic, READER, traces=at_reader) as subscriber:
            events = list(subscriber)
        assert [event.payload for event in events] == [b"5", b"7", b"9"]
        assert [event.content_type for event in events] == ["text/plain"] * 3, "without the context"
        assert [event.traceparent is not None for event in events] == [True, True, False]
    roots = {span.attributes["messaging.destination.name"]: span.context for span in at_publisher.spans}
    assert roots.keys() == TOPICS.keys() and len({root.trace_id for root in roots.values()}) == len(TOPICS)
    for topic, root in roots.items():
        below = [s for s in (*at_broker.spans, *at_reader.spans) if s.context.trace_id == root.trace_id]
        assert sorted(span.name for span in below) == [
            "sealcast admit", "sealcast deliver", "sealcast match", "sealcast open", "sealcast open", "sealcast seal",
        ], topic  # fmt: skip
        assert all(span.parent is not None and span.parent.span_id == root.span_id for span in below)
        assert all(span.start_time <= span.end_time for span in below)
    assert len(at_broker.spans) == 4 * len(TOPICS), "what nobody traced is in no trace"
    # Nobody's name, and nothing that an event says.
    told = "".join(span.to_json() for each in (at_publisher, at_broker, at_reader) for span in each.spans)
    for secret in (PUBLISHER, READER, WARD, "ward", "level >=", str(realm.paths.root)):
        assert secret not in told
    # Whoever has the disk (a gateway, a carrier, a thief) sees no context: it is sealed wherever it lies.
    ids = [form for root in roots.values() for form in forms(root)]
    assert files_with(realm.paths.root, ids) == []
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "weak").write_bytes(b"a frame with " + ids[0] + b" beside the sealed body")
    assert files_with(tmp_path / "open", ids), "a frame that showed it would be found"


def test_a_publishers_own_trace_stays_its_own(realm: Realm) -> None:
    """Two frames that one request made must not be linked by what travels with them."""
    recorder = Recorder()
    tracer = recorder.provider.get_tracer("application")
    with tracer.start_as_current_span("a request") as request:
        mine = request.get_span_context()
        publish(realm, "levels", recorder, 5)
        publish(realm, "levels", recorder, 6)
        assert trace.get_current_span() is request
    published = [span for span in recorder.spans if span.name == "sealcast publish"]
    assert len({mine.trace_id, *(span.context.trace_id for span in published)}) == 3
    assert all(span.parent is None for span in published)
    assert all([link.context.trace_id for link in span.links] == [mine.trace_id] for span in published)


def test_without_traces_nothing_is_added(realm: Realm) -> None:
    with Publisher(realm, "levels", PUBLISHER) as publisher:
        plain = publisher.seal([Event({"level": 5})])
        assert publisher._trace == b""
    with Publisher(realm, "levels", PUBLISHER, traces=Recorder()) as publisher:
        traced = publisher.seal([Event({"level": 5})])
        assert publisher._trace == b"", "a turn is over"
    # The context in the body with an empty predicate, and the parameter in the event's content type.
    assert len(traced[0]) - len(plain[0]) == 1 + 27 + 69


class _Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.got.append((self.path, ExportTraceServiceRequest.FromString(body)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, ExportTraceServiceRequest]]]]:
    """An OTLP receiver on loopback."""
    server = HTTPServer(("127.0.0.1", 0), _Collector)
    server.got = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", server.got  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_spans_go_to_a_collector_by_otlp(realm: Realm) -> None:
    with collector() as (url, got):
        with Traces.to_collector(url) as traces:
            publish(realm, "levels", traces, 5)
        ((path, request),) = got
    ((spans,),) = ([scope.spans for scope in each.scope_spans] for each in request.resource_spans)
    assert path == "/v1/traces" and [span.name for span in spans] == ["sealcast publish"]
    attributes = {each.key: each.value.string_value for each in spans[0].attributes}
    assert attributes == {"messaging.system": "sealcast", "messaging.destination.name": "levels"}


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(Misuse, match="4318"):
        Traces.to_collector("collector:4318")
