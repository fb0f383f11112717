"""Traces: how long an event took on each part of its way, for OpenTelemetry. Off unless somebody asks for them.

    publish  (publisher)   a trace of its own, linked to whatever the publisher was doing
      admit, match, seal, deliver  (broker)   below it, by the context in the frame's body
      open  (subscriber)   below it, by the context in the event

A trace begins anew with every call of `publish`: whoever sees its id learns what the frame's header shows anyway, that
these events came together. Spans name the topic, the broker and numbers; never an entity, an attribute or a payload
(docs/adr/0034-telemetry.md).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from sealcast.errors import Misuse
from sealcast.log.closing import Closing

#: How long a process waits at its end for a collector that does not answer, in milliseconds.
_FLUSH_MS: Final = 5_000


class Stage(NamedTuple):
    """A part of the way, and when it began and ended, in nanoseconds since 1970."""

    name: str
    begin_ns: int
    end_ns: int


class Traces(Closing):
    """Spans of one process. Threads may share it."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        """With a provider of the application's, or one that sends to a collector (`to_collector`)."""
        self._provider, self._tracer = provider, provider.get_tracer("sealcast")

    @classmethod
    def to_collector(cls, url: str) -> Traces:
        """Sends spans by OTLP over HTTP to that address, such as http://127.0.0.1:4318/v1/traces. What is sampled, and
        headers and certificates for the collector, are set by OpenTelemetry's own variables (OTEL_...)."""
        if not url.startswith(("http://", "https://")):
            raise Misuse(f"{url!r} is no address of a collector: write http://HOST:4318/v1/traces")
        resource = Resource({"service.name": "sealcast"})
        provider = TracerProvider(resource=resource, id_generator=_UnguessableIds(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))
        return cls(provider)

    @contextmanager
    def publishing(self, topic: str) -> Iterator[bytes]:
        """A span while events are published, and the context that travels with them. What the publisher was doing is
        linked here, where only its own collector sees it."""
        around = trace.get_current_span().get_span_context()
        links = [Link(around)] if around.is_valid else []
        # An empty context: without it the span would be in the publisher's own trace, and frames would show that.
        with self._tracer.start_as_current_span(
            "sealcast publish",
            context=Context(),
            kind=SpanKind.PRODUCER,
            attributes=_about(topic),
            links=links,
            record_exception=False,  # a message of ours may name an attribute or an entity
        ) as span:
            context = span.get_span_context()
            ids = context.trace_id.to_bytes(16, "big") + context.span_id.to_bytes(8, "big")
            yield ids + bytes([context.trace_flags & TraceFlags.SAMPLED]) if context.is_valid else b""

    def opened(self, topic: str, contexts: Iterable[bytes], begin_ns: int) -> None:
        """Events that were opened together, since then: a span for each that its publisher traces, by its context."""
        stage = Stage("open", begin_ns, time.time_ns())
        for context in contexts:
            self._span(context, stage, SpanKind.CONSUMER, _about(topic))

    def handled(self, topic: str, broker: str, contexts: Iterable[bytes], stages: Iterable[Stage]) -> None:
        """What a broker did with traced frames, afterwards."""
        about, done = {**_about(topic), "sealcast.broker": broker}, list(stages)
        for context in contexts:
            for stage in done:
                self._span(context, stage, SpanKind.INTERNAL, about)

    def _span(self, context: bytes, stage: Stage, kind: SpanKind, about: dict[str, Any]) -> None:
        parent = SpanContext(
            int.from_bytes(context[:16], "big"), int.from_bytes(context[16:24], "big"), True, TraceFlags(context[24])
        )
        around = trace.set_span_in_context(NonRecordingSpan(parent), Context())
        span = self._tracer.start_span(f"sealcast {stage.name}", around, kind, about, start_time=stage.begin_ns)
        span.end(max(stage.begin_ns, stage.end_ns))

    def close(self) -> None:
        """Sends what was not sent yet, if the collector answers soon."""
        if isinstance(self._provider, TracerProvider):
            self._provider.force_flush(_FLUSH_MS)
            self._provider.shutdown()


def _about(topic: str) -> dict[str, Any]:
    return {"messaging.system": "sealcast", "messaging.destination.name": topic}


class _UnguessableIds(IdGenerator):
    """Brokers and subscribers see ids. OpenTelemetry's own come from `random`, and would give its next numbers away."""

    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1

    def generate_trace_id(self) -> int:
        return secrets.randbits(128) or 1
