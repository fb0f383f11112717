"""What a browser sent: the fields of a query or a form, in their limits."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from sealcast.console.guard import VIEWER
from sealcast.console.viewer import Viewer
from sealcast.errors import Misuse

MAX_BODY_BYTES: Final = 64 << 10
MAX_FIELDS: Final = 64


class FormFields:
    """Fields by name, each once."""

    def __init__(self, raw: bytes) -> None:
        try:
            given = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except (ValueError, UnicodeDecodeError):
            raise Misuse("what the browser sent cannot be read") from None
        self._fields = dict(given)

    def __call__(self, name: str, otherwise: str = "") -> str:
        return self._fields.get(name, otherwise).strip()

    def starting(self, prefix: str) -> dict[str, str]:
        """The fields whose names begin so, by the rest of their names."""
        return {name.removeprefix(prefix): value for name, value in self._fields.items() if name.startswith(prefix)}

    def __bool__(self) -> bool:
        return bool(self._fields)


async def asked_of(request: Request) -> FormFields:
    """The fields of a request: of its query, or of the form that it carries."""
    if request.method in ("GET", "HEAD"):
        return FormFields(request.url.query.encode())
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise Misuse(f"a form here has at most {MAX_BODY_BYTES} bytes")
    return FormFields(body)


def viewer_of(request: Request) -> Viewer:
    """Who looks; the guard has let it in."""
    found = request.scope[VIEWER]
    assert isinstance(found, Viewer)
    return found
