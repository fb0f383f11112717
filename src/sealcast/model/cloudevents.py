"""CloudEvents 1.0 in structured JSON, to events and back.

The format is the specification's (https://github.com/cloudevents/spec, cloudevents/formats/json-format.md).

A CloudEvent is published as it is: its JSON is the payload, under the seal, with content type `application/
cloudevents+json`. So `type`, `source` and all other context attributes are secret wherever payloads are. Attributes of
the topic's schema take their values from the CloudEvent's attribute of the same name, else from the member of `data` of
that name: filters work on those, and each protection says who sees them.

On the way out a CloudEvent is what was published, with two extensions that its reader verified: `sealcastpublisher` and
`sealcastposition`. Nobody can publish these. Any other event becomes a CloudEvent of type `sealcast.event`.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from sealcast.errors import EventRejected
from sealcast.model.event import Event, OpenedEvent
from sealcast.model.schema import value_to_json

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
SPEC_VERSION: Final = "1.0"
MAX_BYTES: Final = 4 << 20
#: The specification asks for names of at most 20 characters; longer ones are used all the same.
MAX_NAME: Final = 64
_NAME: Final = re.compile(rf"[a-z0-9]{{1,{MAX_NAME}}}")
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_REQUIRED: Final = ("id", "source", "specversion", "type")
_TEXTS: Final = frozenset({*_REQUIRED, "datacontenttype", "dataschema", "subject", "time"})
_DATA: Final = frozenset({"data", "data_base64"})
#: Of our own extensions.
RESERVED: Final = "sealcast"
_INT32: Final = 2**31


def is_cloudevent(event: OpenedEvent) -> bool:
    return event.content_type.partition(";")[0].strip().lower() == "application/cloudevents+json"


def to_event(line: bytes, names: Iterable[str]) -> Event:
    """A CloudEvent as an event of a topic whose attributes have these names; EventRejected says what is wrong."""
    body = _parsed(line)
    for name in _REQUIRED:
        if not body.get(name):
            raise EventRejected(f"a CloudEvent has {name!r}, which is missing or empty", attribute=name)
    if body["specversion"] != SPEC_VERSION:
        raise EventRejected(f"specversion is {SPEC_VERSION}, not {str(body['specversion'])[:16]!r}")
    for name, value in body.items():
        if name not in _DATA:
            _vet(name, value)
    if body.keys() >= _DATA:
        raise EventRejected("a CloudEvent has data or data_base64, not both")
    if "data_base64" in body:
        _vet_base64(body["data_base64"])
    data, context = body.get("data"), {name: value for name, value in body.items() if name not in _DATA}
    known = {**data, **context} if isinstance(data, dict) else context
    return Event({name: known[name] for name in names if name in known}, line.strip(), CONTENT_TYPE)


def from_event(event: OpenedEvent, topic: str) -> dict[str, Any]:
    """An opened event as a CloudEvent. One whose publisher says that it is a CloudEvent, and that is none, is taken as
    any other event: its content type shows it."""
    said = {"sealcastpublisher": event.publisher, "sealcastposition": str(event.position)}
    published = _published(event) if is_cloudevent(event) else None
    if published is not None:
        return {**published, **said}
    inside: dict[str, Any] = {
        "attributes": {name: value_to_json(value) for name, value in event.attributes.items()},
        "content_type": event.content_type,
    }
    try:
        inside["payload"] = event.payload.decode()
    except UnicodeDecodeError:
        inside["payload_base64"] = base64.b64encode(event.payload).decode()
    return {
        "specversion": SPEC_VERSION,
        "id": f"{event.publisher}/{event.boot.hex()}/{event.sequence}",
        "source": f"/topics/{topic}/publishers/{event.publisher}",
        "type": "sealcast.event",
        "time": value_to_json(event.published_at),
        "datacontenttype": "application/json",
        "data": inside,
        **said,
    }


def _published(event: OpenedEvent) -> dict[str, Any] | None:
    """The CloudEvent in an event's payload, if it is one."""
    try:
        to_event(event.payload, ())
    except EventRejected:
        return None
    found: dict[str, Any] = json.loads(event.payload)
    return found


def _parsed(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_BYTES:
        raise EventRejected(f"the CloudEvent has more than {MAX_BYTES} bytes")
    try:
        body = json.loads(line, parse_float=Decimal, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise EventRejected("this is not JSON") from None
    if not isinstance(body, dict):
        raise EventRejected(
            'a CloudEvent is a JSON object: {"specversion": "1.0", "id": ..., "source": ..., "type": ..., "data": ...}'
        )
    return body


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two readers could see different ones of two members of one name."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise EventRejected("a member of a JSON object is there twice")
    return found


def _vet(name: str, value: object) -> None:
    """A context attribute, by name and type."""
    if not _NAME.fullmatch(name):
        raise EventRejected(f"{name[:80]!r} is no name of an attribute of CloudEvents: lower-case letters and digits")
    if name.startswith(RESERVED):
        raise EventRejected(f"{name!r}: names that begin with {RESERVED!r} are given to readers, not by publishers")
    if value is None:
        return  # the same as an attribute that is not there
    if name in _TEXTS and not (isinstance(value, str) and value):
        raise EventRejected(f"{name!r} is a text that is not empty", attribute=name)
    if name == "time":
        _vet_time(str(value))
    match value:
        case bool() | str():
            return
        case int() if -_INT32 <= value < _INT32:
            return
    raise EventRejected(f"extension {name!r} is a text, a truth value or a whole number of 32 bits", attribute=name)


def _vet_time(text: str) -> None:
    try:
        if _RFC3339.fullmatch(text):
            datetime.fromisoformat(text.upper())
            return
    except ValueError:
        pass
    raise EventRejected(f"time is as in RFC 3339: 2026-03-01T12:00:00Z, not {text[:40]!r}", attribute="time")


def _vet_base64(value: object) -> None:
    try:
        if isinstance(value, str):
            base64.b64decode(value, validate=True)
            return
    except (binascii.Error, ValueError):
        pass
    raise EventRejected("data_base64 is base64")
