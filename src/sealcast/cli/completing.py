"""Completion that knows the realm: names of topics, entities, brokers and the rest, where a command takes one.

A command says by its metavar what it takes (`TOPIC`, `ENTITY`, ...), and `talk.Commands` gives each such parameter the
function of the table below. While the shell waits nothing is said: a realm that is not there has no names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import typer
from typer.models import ParameterInfo

from sealcast.errors import SealcastError

if TYPE_CHECKING:
    from sealcast.trust.certificates.roles import Role
    from sealcast.trust.realm.state import RealmState

#: A name, and a word about it that some shells show beside it.
Named = tuple[str, str]
Completing = Callable[[typer.Context, str], list[Named]]
#: Names that are offered at most: a terminal is no place for more.
MOST: Final = 500


def _state(context: typer.Context) -> RealmState:
    """Of the realm that the command line means so far."""
    from sealcast.cli import contexts
    from sealcast.trust.handles import EntityRealm

    root = context.find_root()
    realm = context.params.get("realm") or root.params.get("realm")
    if realm is None:
        environment = dict(os.environ)
        contexts.apply(root.params.get("context"), (), environment)
        realm = environment.get(contexts.REALM)
    return EntityRealm(realm).state()


def _completing(names: Callable[[RealmState], Iterator[Named]]) -> Completing:
    def complete(ctx: typer.Context, incomplete: str) -> list[Named]:
        try:
            found = sorted(each for each in names(_state(ctx)) if each[0].startswith(incomplete))
        except (SealcastError, OSError):
            return []
        return found[:MOST]

    return complete


def _topics(state: RealmState) -> Iterator[Named]:
    return ((name, str(state.topic(name).protection)) for name in state.topics)


def _of_role(role: str) -> Callable[[RealmState], Iterator[Named]]:
    def names(state: RealmState) -> Iterator[Named]:
        wanted: Role = _role(role)
        return ((who.name, role) for who in state.entities.values() if wanted in who.roles and not who.revoked)

    return names


def _role(name: str) -> Role:
    from sealcast.trust.certificates.roles import Role

    return Role(name)


def _everybody(state: RealmState) -> Iterator[Named]:
    return ((who.name, ", ".join(sorted(who.roles))) for who in state.entities.values() if not who.revoked)


def _subscriptions(state: RealmState) -> Iterator[Named]:
    for topic in state.topics:
        yield from ((each.id, f"{each.subscriber} on {topic}") for each in state.subscriptions_of(topic))


def contexts_known(incomplete: str) -> list[Named]:
    """Of this user, in whatever realm."""
    from sealcast.cli import contexts

    try:
        known = contexts.read().named
    except (SealcastError, OSError):
        return []
    return [(name, known[name].realm) for name in sorted(known) if name.startswith(incomplete)]


topics: Final = _completing(_topics)
entities: Final = _completing(_of_role("entity"))
everybody: Final = _completing(_everybody)
brokers: Final = _completing(_of_role("broker"))
subscriptions: Final = _completing(_subscriptions)

#: What each metavar takes.
BY_METAVAR: Final[dict[str, Completing]] = {
    "TOPIC": topics,
    "ENTITY": entities,
    "SUBSCRIBER": entities,
    "OWNER": entities,
    "BROKER": brokers,
}


def know(parameter: ParameterInfo) -> None:
    """Lets a parameter be completed, if its metavar says how and it does not know better."""
    found = BY_METAVAR.get((parameter.metavar or "").strip("[].") if isinstance(parameter.metavar, str) else "")
    if found is not None and parameter.autocompletion is None and parameter.shell_complete is None:
        parameter.autocompletion = found
