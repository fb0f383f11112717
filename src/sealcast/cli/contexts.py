"""Contexts: names for realms that one works with, and which of them is meant when none is named.

They are a matter of the command line alone, kept in the user's configuration, and hold no secret: where a realm is, and
as whom one usually acts there. What is nearer goes first: --realm and --context, then SEALCAST_REALM, SEALCAST_CONTEXT,
the realm around the working directory, and the context in use last. So a context never takes the place of a realm that
one stands in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.model.dataclass import dataclass

REALM: Final = "SEALCAST_REALM"
CONTEXT: Final = "SEALCAST_CONTEXT"
ENTITY: Final = "SEALCAST_AS"
_MOST_BYTES: Final = 1 << 20
_LONGEST_NAME: Final = 64


class RealmContext(NamedTuple):
    """A realm, by its directory or the address of its gateway, and as whom to act there."""

    realm: str
    entity: str | None = None


@dataclass(frozen=True, slots=True)
class Contexts:
    named: Mapping[str, RealmContext]
    #: The one in use.
    current: str | None = None

    def find(self, name: str) -> RealmContext:
        found = self.named.get(name)
        if found is None:
            known = ", ".join(self.named) or "none yet"
            raise NotFound(f"there is no context {name!r}", hint=f"there are: {known}; see: sealcast context --help")
        return found

    def with_context(self, name: str, context: RealmContext) -> Contexts:
        if not name.isprintable() or not name.strip() or len(name) > _LONGEST_NAME:
            raise Misuse(f"a context's name has 1 to {_LONGEST_NAME} characters that can be printed")
        return replace(self, named={**self.named, name: context})

    def without(self, name: str) -> Contexts:
        self.find(name)
        kept = {other: context for other, context in self.named.items() if other != name}
        return Contexts(kept, None if self.current == name else self.current)

    def using(self, name: str | None) -> Contexts:
        if name is not None:
            self.find(name)
        return replace(self, current=name)


def file(environment: Mapping[str, str] = os.environ) -> Path:
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or Path.home()) / ".config"
    return Path(home) / "sealcast" / "contexts.json"


def read(environment: Mapping[str, str] = os.environ) -> Contexts:
    path = file(environment)
    try:
        raw = path.read_bytes()
        body: dict[str, Any] = json.loads(raw) if len(raw) <= _MOST_BYTES else {}
        named = {str(name): _context(entry) for name, entry in body["contexts"].items()}
        current = body.get("current")
        return Contexts(named, current if current is None or current in named else _fail())
    except FileNotFoundError:
        return Contexts({})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Corrupt(f"{path} cannot be read as a list of contexts", hint="correct it, or remove it") from None


def write(contexts: Contexts, environment: Mapping[str, str] = os.environ) -> None:
    from sealcast.log.files import replace_file

    entries = {name: {"realm": c.realm, "as": c.entity} for name, c in sorted(contexts.named.items())}
    path = file(environment)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    body = {"current": contexts.current, "contexts": entries}
    replace_file(path, json.dumps(body, indent=2, ensure_ascii=False).encode() + b"\n")


def apply(named: str | None, arguments: Sequence[str], environment: MutableMapping[str, str] = os.environ) -> None:
    """Says to the command which realm is meant, and as whom, by its environment. `named` is what --context says."""
    if any(word == "--realm" or word.startswith("--realm=") for word in arguments):
        if named is not None:
            raise Misuse("--context and --realm both name a realm", hint="give one of them")
        return
    chosen = named
    if chosen is None and not environment.get(REALM):
        chosen = environment.get(CONTEXT) or _in_use(environment)
    if chosen is None:
        return
    context = read(environment).find(chosen)
    environment[REALM] = context.realm
    if context.entity is not None:
        environment.setdefault(ENTITY, context.entity)


def _in_use(environment: Mapping[str, str]) -> str | None:
    """The context in use, unless one stands in a realm."""
    if not file(environment).is_file():
        return None
    from sealcast.trust.layout import around

    return None if around(Path.cwd()) is not None else read(environment).current


def _context(entry: Mapping[str, object]) -> RealmContext:
    realm, entity = entry["realm"], entry.get("as")
    if not isinstance(realm, str) or not isinstance(entity, str | None):
        raise TypeError
    return RealmContext(realm, entity)


def _fail() -> str:
    raise ValueError
