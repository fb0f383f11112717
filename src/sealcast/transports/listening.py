"""A socket that listens, for gateways and peers alike."""

from __future__ import annotations

import socket
from typing import Final

from sealcast.errors import Unavailable

#: Connections that the system holds for a process that is busy.
_BACKLOG: Final = 2_048


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one."""
    try:
        family, kind, protocol, _, at = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(at)
            found.listen(_BACKLOG)
            found.setblocking(False)
        except BaseException:
            found.close()
            raise
    except OSError as error:
        raise Unavailable(
            f"nobody can listen on {host}:{port}: {error.strerror}", hint="name another with --listen HOST:PORT"
        ) from None
    return found
