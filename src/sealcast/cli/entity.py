"""sealcast entity: enrol, list, revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.trust.realm import Entity, RealmState

app = typer.Typer(help="Enrol, list and revoke entities.", **talk.SETTINGS)


@app.command(epilog="Example: sealcast entity enrol nyse alice bob")
def enrol(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="New names; never ones that were used before.")],
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Enrol entities: each gets a key pair to sign with and one to receive keys by.

    The private keys go to entities/NAME.key, sealed under your unlock key; `sealcast relock` makes a copy that you can
    give to its owner. All names are enrolled, or none.
    """
    here = talk.open_realm(realm)
    made = here.enrol_many(names)
    state = here.state()
    if json:
        talk.emit({"entities": [_describe(state, e) | {"keys": str(here.paths.entity_key(e.name))} for e in made]})
        return
    for entity in made:
        talk.say(f"entity {entity.name!r} enrolled, its keys in {here.paths.entity_key(entity.name)}")


@app.command("list", epilog="Example: sealcast entity list")
def list_(realm: talk.RealmOption = None, json: talk.JsonOption = False) -> None:
    """List everyone who was ever enrolled."""
    state = talk.open_realm(realm).state()
    if json:
        talk.emit({"entities": [_describe(state, e) for e in state.entities.values()]})
        return
    rows = [
        (
            e.name,
            f"revoked at version {e.revoked_at_version}" if e.revoked else "enrolled",
            ", ".join(sorted(e.roles)),
            sum(e.name in t.slots for t in state.topics.values()),
            e.verify_key.hex(),
        )
        for e in state.entities.values()
    ]
    talk.table(
        ["entity", "standing", "roles", "subscribed topics", "verify key"],
        rows,
        "nobody yet: sealcast entity enrol NAME",
    )


@app.command(epilog="Example: sealcast entity revoke mallory")
def revoke(name: str, realm: talk.RealmOption = None, json: talk.JsonOption = False) -> None:
    """Revoke an entity for good, on every topic.

    From the next batch on nothing it publishes is admitted and nothing is sealed for it. Its name is never given again.
    To take single rights away, see `sealcast revoke`.
    """
    here = talk.open_realm(realm)
    version = here.revoke_entity(name)
    if json:
        state = here.state()
        talk.emit(_describe(state, state.entity(name)))
        return
    talk.say(f"entity {name!r} revoked at version {version}; the next batch goes by it")


def _describe(state: RealmState, entity: Entity) -> dict[str, object]:
    return {
        "entity": entity.name,
        "revoked_at_version": entity.revoked_at_version,
        "topics": {
            topic: [str(r) for r in sorted(rights)]
            for topic in state.topics
            if (rights := state.rights_of(topic, entity.name))
        },
        "roles": [str(r) for r in sorted(entity.roles)],
        "verify_key": entity.verify_key.hex(),
        "kem_public": entity.kem_public.hex(),
    }
