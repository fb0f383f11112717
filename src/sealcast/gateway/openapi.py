"""The table of routes as an OpenAPI 3.1 document: for those who write a client without reading this code."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Final

from sealcast.gateway.limits import MAX_PAGE_BYTES
from sealcast.gateway.problems import MEDIA_TYPE
from sealcast.gateway.routes import CBOR, CBOR_SEQUENCE, ENDPOINTS, JSON, OCTETS, SEGMENTS, ApiRoute

API_VERSION: Final = "1.0.0"
_ALWAYS: Final = (400, 401, 403, 404, 421, 429, 503)
_MEANS: Final = {
    400: "The request made no sense. Sending it again does not help.",
    401: "There is no certificate, or it does not count any more (`reason`).",
    403: "It is not the caller's to have.",
    404: "There is no such thing here.",
    408: "The body did not come in time.",
    409: "The registry is at a newer version (`newest`). Read what is new, and make the change again.",
    413: "The body is too large.",
    415: "The body is of another media type.",
    422: "It was understood, and is refused (`reason`): it is not signed by whom it should be, or the rules forbid it.",
    421: "It is elsewhere: a broker has a gateway of its own, or the realm has. The registry says where.",
    429: "Too many requests of one caller. Wait, then go on.",
    503: "Something is not available, or there is too much to do. Nothing was done; try again.",
    507: "The disk is full. Nothing was done.",
}
_ABOUT: Final = f"""\
Publishers and subscribers of a Sealcast realm on other machines talk to this interface.

**Who you are.** TLS 1.3 with a client certificate of the realm (mutual TLS): the entity's own, with the authority that
issued it. The server's certificate leads to the realm's root, which you pin by its SHA-256, and names the host. Without
a certificate you get the public endpoints only.

**Believe nothing that is not signed.** Rows of the registry, records of ledgers and envelopes are signed by who made
them. A piece is verified by its digest in the ledger. The gateway's word counts for nothing but receipts.

**Bodies** are deterministic CBOR (RFC 8949, section 4.2.1): shortest integers, definite lengths, keys sorted by their
encoded bytes. Byte strings are written here as `string` with the format `byte-string`. Errors are JSON (RFC 9457).

**Every answer** has `sealcast-version`, the newest version of the registry that the gateway has seen.

**Long-poll** with `wait`: the answer comes as soon as there is something, or when the time is over. A page has at most
{MAX_PAGE_BYTES >> 20} MiB unless one record alone is larger.
"""


@cache
def document() -> bytes:
    """The document, as it is served and as it stands in docs/."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    body = {
        "openapi": "3.1.0",
        "info": {"title": "Sealcast gateway", "version": API_VERSION, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {"mutualTLS": {"type": "mutualTLS", "description": "A certificate of the realm."}},
        },
        "security": [{"mutualTLS": []}],
    }
    return json.dumps(body, indent=1, ensure_ascii=False).encode() + b"\n"


def _operation(endpoint: ApiRoute) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", endpoint.path)
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": f"^{SEGMENTS[name]}$"},
        }
        for name in names
    ]
    for each in endpoint.query:
        schema = each.shape.schema() | ({} if each.default is None else {"default": each.default})
        parameters.append(
            {"name": each.name, "in": "query", "required": each.required, "description": each.about, "schema": schema}
        )
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "parameters": parameters,
        "responses": _responses(endpoint),
    }
    if endpoint.body is not None:
        found["requestBody"] = {"required": True, "content": {CBOR: {"schema": endpoint.body.schema()}}}
    if endpoint.public:
        found["security"] = []
    return found


def _responses(endpoint: ApiRoute) -> dict[str, Any]:
    version = {"sealcast-version": {"schema": {"type": "integer"}, "description": "The registry's newest version."}}
    good: dict[str, Any] = {"description": "Done.", "headers": version}
    if endpoint.media_type is not None:
        good["content"] = {endpoint.media_type: {"schema": _schema(endpoint)}}
    refusals = {*_ALWAYS, *endpoint.refusals, *((408, 413, 415) if endpoint.body is not None else ())}
    problem = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    bad = {str(n): {"description": _MEANS[n], "headers": version, "content": problem} for n in sorted(refusals)}
    return {"200" if endpoint.media_type is not None else "204": good, **bad}


def _schema(endpoint: ApiRoute) -> dict[str, Any]:
    if endpoint.gives is not None:
        return endpoint.gives.schema()
    return {OCTETS: {"type": "string", "format": "binary"}, CBOR_SEQUENCE: {"type": "string", "format": "binary"}}.get(
        endpoint.media_type or "", {"type": "object"} if endpoint.media_type == JSON else {}
    )


_PROBLEM: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "`sealcast:` and a stable word."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "For a person."},
        "hint": {"type": "string", "description": "The next thing to do."},
        "reason": {"type": "string", "description": "One word of a fixed list."},
        "newest": {"type": "integer", "description": "With 409: the registry's newest version."},
    },
}
