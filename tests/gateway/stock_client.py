"""A client written from the OpenAPI document alone: Python's own ssl and http.client, and a general CBOR library.

It knows nothing of Sealcast's code. What it needs to know of bodies stands in docs/gateway-api.json.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cbor2

CBOR = "application/cbor"


@dataclass(frozen=True)
class Answer:
    """Number, headers and body."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def value(self) -> Any:
        """The body, as its media type says."""
        kind = self.headers.get("content-type", "")
        if kind == CBOR:
            return cbor2.loads(self.raw)
        return json.loads(self.raw) if "json" in kind else self.raw

    @property
    def problem(self) -> str:
        """The word and the reason of a refusal."""
        assert self.headers["content-type"] == "application/problem+json", self
        found = json.loads(self.raw)
        return ":".join([found["type"].removeprefix("sealcast:"), *([found["reason"]] if "reason" in found else [])])


class StockClient:
    """One connection to a gateway, as an entity or as nobody."""

    def __init__(
        self, host: str, port: int, root: Path, identity: Path | None = None, *, timeout: float = 120, address: str = ""
    ) -> None:
        """`root` is the realm's root in PEM; `identity` has the certificate, its issuer and the key."""
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.load_verify_locations(root)
        if identity is not None:
            self.context.load_cert_chain(identity)
        source = (address, 0) if address else None
        self.connection = http.client.HTTPSConnection(
            host, port, timeout=timeout, context=self.context, source_address=source
        )

    def ask(self, method: str, path: str, body: object = None, *, raw: bytes | None = None, **query: object) -> Answer:
        """One request. `from` is a word of Python's: it is given as `from_`."""
        given = "&".join(f"{name.rstrip('_')}={value}" for name, value in query.items() if value is not None)
        sent = cbor2.dumps(body, canonical=True) if body is not None else raw
        headers = {"content-type": CBOR} if sent is not None else {}
        self.connection.request(method, f"{path}?{given}" if given else path, body=sent, headers=headers)
        found = self.connection.getresponse()
        return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())

    def get(self, path: str, **query: object) -> Answer:
        return self.ask("GET", path, **query)

    def post(self, path: str, body: object, **query: object) -> Answer:
        return self.ask("POST", path, body, **query)

    def put(self, path: str, body: object = None, **query: object) -> Answer:
        return self.ask("PUT", path, body, **query)

    def delete(self, path: str) -> Answer:
        return self.ask("DELETE", path)

    def follow(self, path: str, **query: object) -> Iterator[Any]:
        """The items of an endless answer, as they come. Encoding is deterministic, so an item tells its length."""
        given = "&".join(f"{name.rstrip('_')}={value}" for name, value in query.items())
        self.connection.request("GET", f"{path}?{given}")
        answer, waiting = self.connection.getresponse(), b""
        assert answer.getheader("content-type") == "application/cbor-seq", answer.status
        while part := answer.read1(1 << 16):
            waiting += part
            while waiting:
                try:
                    item = cbor2.loads(waiting)
                except cbor2.CBORDecodeEOF:
                    break
                waiting = waiting[len(cbor2.dumps(item, canonical=True)) :]
                yield item

    def close(self) -> None:
        self.connection.close()
