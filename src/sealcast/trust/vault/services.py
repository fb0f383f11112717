"""The port of key services: what keeps the key that wraps an unlock key, so that no file holds it in clear.

A key service has a key of its own that it never gives away. It wraps 32 bytes, once, and unwraps them whenever a
process starts. A PKCS#11 token does that, and so does every cloud's key management. The interface is `KeyService`, and
the services are `SERVICES`, a table by the scheme of their addresses:

    pkcs11:token=sealcast;object=unlock-key        a token (RFC 7512), through the module SEALCAST_PKCS11_MODULE

For another service, write a factory and name it: SEALCAST_KEY_SERVICES=acme=acme_keys:open_service. It is called with
what follows `acme:` in an address; docs/unlock-keys.md has one, whole. Code is named by the environment alone, never by
a file that holds a wrapped key: whoever changes such a file gets it refused, and gets nothing run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, Protocol, runtime_checkable

from sealcast.errors import Misuse, Unavailable, extras_named

SERVICES_VARIABLE: Final = "SEALCAST_KEY_SERVICES"
#: An address is written into a file, and shown to people.
MAX_ADDRESS: Final = 1_024
MAX_WRAPPED: Final = 1_024
_SCHEME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
_DOTTED: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)


class KeyService(Protocol):
    """Wraps and unwraps 32 bytes under a key that it keeps.

    Raise `Unavailable` where it cannot be asked, `CannotOpen` where it did not wrap this, each with what to do about
    it. No message may hold what was unwrapped.
    """

    def wrap(self, plain: bytes, context: bytes, /) -> bytes:
        """`plain`, so that only this service gives it back, and only for the same `context`."""
        ...

    def unwrap(self, wrapped: bytes, context: bytes, /) -> bytes:
        """What was wrapped."""
        ...


@runtime_checkable
class MakesKeys(Protocol):
    """A service that can be told to make its key."""

    def make(self) -> None: ...


Factory = Callable[[str], KeyService]

#: By scheme, where the factory is: imported when an address asks for it.
SERVICES: Final[Mapping[str, str]] = {"pkcs11": "sealcast.trust.vault.pkcs11:open_service"}


def open_service(address: str, environment: Mapping[str, str] = os.environ) -> KeyService:
    """The service at an address; Misuse when there is none of its scheme."""
    scheme, _, rest = address.partition(":")
    if not rest or len(address) > MAX_ADDRESS or not address.isprintable():
        raise Misuse(f"an address of a key service is SCHEME:REST, of at most {MAX_ADDRESS} printable characters")
    known = {**_named(environment.get(SERVICES_VARIABLE, "")), **SERVICES}
    if scheme not in known:
        raise Misuse(
            f"no key service is called {scheme!r}; there are: {', '.join(sorted(known))}",
            hint=f"name its factory: {SERVICES_VARIABLE}={scheme}=MODULE:FUNCTION",
        )
    return _factory(known[scheme])(rest)


def _named(text: str) -> dict[str, str]:
    """What the operator has named: `scheme=module:function`, separated by commas."""
    found = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        scheme, _, at = entry.partition("=")
        if not _SCHEME.fullmatch(scheme) or not _DOTTED.fullmatch(at) or scheme in SERVICES or scheme in found:
            raise Misuse(f"{entry!r} in {SERVICES_VARIABLE} is not a new SCHEME=MODULE:FUNCTION")
        found[scheme] = at
    return found


def _factory(at: str) -> Factory:
    module, _, name = at.partition(":")
    with extras_named():
        try:
            factory: Factory = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            raise Unavailable(
                f"there is no module {module!r}, which {SERVICES_VARIABLE} names", hint="install it, or set PYTHONPATH"
            ) from None
        except AttributeError:
            raise Misuse(f"module {module!r} has no {name!r}; {SERVICES_VARIABLE} names it") from None
    return factory
