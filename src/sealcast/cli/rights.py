"""sealcast grant, sealcast revoke: simple rights, per topic and entity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.trust.realm import RealmState

from sealcast.trust.changes import Right

grant_app = typer.Typer(**talk.SETTINGS)
revoke_app = typer.Typer(**talk.SETTINGS)

Rights = Annotated[list[Right], typer.Argument(metavar="RIGHT...", help="publish, subscribe, or both.")]


@grant_app.command(epilog="Example: sealcast grant orders alice subscribe")
def grant(
    topic: str, entity: str, rights: Rights, realm: talk.RealmOption = None, json: talk.JsonOption = False
) -> None:
    """Give an entity rights on a topic, and the key it needs to use them."""
    _report(talk.open_realm(realm).grant(topic, entity, rights), topic, entity, json)


@revoke_app.command(epilog="Example: sealcast revoke orders alice publish")
def revoke(
    topic: str, entity: str, rights: Rights, realm: talk.RealmOption = None, json: talk.JsonOption = False
) -> None:
    """Take an entity's rights on a topic away, from the next batch on.

    Its subscriptions stay and sleep until the right comes back. To end an entity on every topic, see
    `sealcast entity revoke`.
    """
    _report(talk.open_realm(realm).revoke(topic, entity, rights), topic, entity, json)


def _report(state: RealmState, topic: str, entity: str, json: bool) -> None:
    held = [str(r) for r in Right if state.may(r, topic, entity)]
    if json:
        talk.emit({"topic": topic, "entity": entity, "may": held, "version": state.version})
        return
    talk.say(f"{entity!r} may {' and '.join(held) or 'do nothing'} on {topic!r} (version {state.version})")
