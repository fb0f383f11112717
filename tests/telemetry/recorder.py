"""Traces that stay in memory, and whether something of them lies on a disk."""

from __future__ import annotations

import os
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from sealcast.telemetry.traces import Traces


class Recorder(Traces):
    """Traces that stay in memory."""

    def __init__(self) -> None:
        self._kept = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._kept))
        super().__init__(self.provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._kept.get_finished_spans())


def forms(context: SpanContext) -> list[bytes]:
    """The ids of a trace and a span, as they could lie anywhere."""
    raw = [context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")]
    return [form for each in raw for form in (each, each.hex().encode())]


def files_with(root: Path, needles: list[bytes]) -> list[str]:
    """Files below a directory that have one of these in them."""
    found = []
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            data = path.read_bytes() if path.is_file() else b""
            found += [str(path)] if any(needle in data for needle in needles) else []
    return found
