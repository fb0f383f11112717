"""sealcast entity: enrol, invite, list, renew, revoke; and the certificate for a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import completing, talk, times
from sealcast.cli.times import moment
from sealcast.errors import Misuse, NotFound
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.certificates.roles import Role

if TYPE_CHECKING:
    from sealcast.primitives.secrets import Secret
    from sealcast.trust.realm.changes import Grant
    from sealcast.trust.realm.machine import Entity, RealmState

app = talk.Commands("Enrol, invite, list, renew and revoke entities; give a browser one's certificate.")

_MAX_PASSWORD_BYTES: Final = 4_096
Name = Annotated[str, typer.Argument(metavar="NAME")]
Known = Annotated[str, typer.Argument(metavar="NAME", autocompletion=completing.everybody)]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST", help="Of a gateway: a name or address that it answers at; repeatable."),
]


@app.command(epilog="Example: sealcast entity enrol nyse alice bob")
def enrol(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="New names, which were never used before.")],
    role: Annotated[
        Role, typer.Option(help="Its role: entity; or broker, key-center, discovery or gateway, which run the realm.")
    ] = Role.ENTITY,
    hosts: Hosts = None,
) -> None:
    """Enrol entities: each gets keys to identify itself, to sign and to receive, and a certificate for them.

    The private keys go to entities/NAME.key, or to secrets/ for those who run the realm, sealed under your unlock key.
    `sealcast relock` makes a copy that you can give to its owner. Either all names are enrolled, or none. A new broker
    serves no topic yet: see `sealcast topic serve`. A gateway that is enrolled again gets a certificate for
    the hosts that are named then.
    """
    here = talk.open_realm()
    add = {
        Role.BROKER: (here.add_broker, here.paths.broker_key_of),
        Role.KEY_CENTER: (here.add_center, here.paths.center_key),
        Role.DISCOVERY: (here.add_discovery_node, here.paths.discovery_key),
        Role.GATEWAY: (lambda name: here.add_gateway(name, hosts or ()), here.paths.gateway_key),
    }
    if hosts and role is not Role.GATEWAY:
        raise typer.BadParameter("only a gateway answers at hosts: --role gateway", param_hint="--host")
    if role is Role.ENTITY:
        made, path = here.enrol_many(names), here.paths.entity_key
    elif role in add and len(names) == 1:
        made, path = [add[role][0](names[0])], add[role][1]
    else:
        raise typer.BadParameter("enrol those who run the realm one at a time; its authority is made with it")
    state = here.state()
    document = {"entities": [_describe(state, e) | {"keys": str(path(e.name))} for e in made]}
    talk.answer(document, *(f"{role} {e.name!r} enrolled, its keys in {path(e.name)}" for e in made))


@app.command(epilog="Example: sealcast entity invite bob --grant quotes:subscribe --for 24h")
def invite(
    name: Name,
    grants: Annotated[
        list[str] | None,
        typer.Option("--grant", metavar="TOPIC:RIGHT", help="A right that it gets: quotes:publish; repeatable."),
    ] = None,
    role: Annotated[
        Role, typer.Option(help="Its role: entity; or broker, key-center, discovery or gateway, elsewhere.")
    ] = Role.ENTITY,
    hosts: Hosts = None,
    span: Annotated[str, typer.Option("--for", metavar="SPAN", help="How long the code can be used: 2h, 7d.")] = "24h",
) -> None:
    """Invite somebody on another machine: print a code that enrols whoever uses it first, once.

    Hand the code over by a way that nobody else reads. Its holder runs `sealcast join sealcast://HOST:PORT --code CODE`
    and makes its keys there. A gateway and `sealcast serve` must be running then.
    """
    from sealcast.control import reception

    if role is Role.AUTHORITY:
        raise typer.BadParameter("the realm's authority is made with it", param_hint="--role")
    if grants and role is not Role.ENTITY:
        raise typer.BadParameter("only entities have rights on topics", param_hint="--grant")
    if hosts and role is not Role.GATEWAY:
        raise typer.BadParameter("only a gateway answers at hosts: --role gateway", param_hint="--host")
    here = talk.open_realm()
    rights, for_us = _grants(name, grants or []), times.seconds(span, "--for") * 1_000_000
    code, until_us = reception.invite(here, name, rights, for_us, role, hosts or ())
    document = {"entity": name, "role": str(role), "code": code.reveal(), "until": moment(until_us)}
    talk.answer(document, code.reveal())
    talk.note(f"until {moment(until_us)}, whoever has this code becomes {name!r}: sealcast join sealcast://HOST:PORT")


@app.command(epilog="Example: sealcast entity invitations --revoke bob")
def invitations(
    revoke: Annotated[str | None, typer.Option("--revoke", metavar="NAME", help="End the one for this name.")] = None,
) -> None:
    """List invitations, the oldest first, and how each stands (blocked: by bogus attempts)."""
    from sealcast.control import reception

    here = talk.open_realm()
    now = here.clock()
    with reception.store_of(here.paths) as store:
        if revoke is not None:
            store.revoke(revoke, now)
        found = store.all()
    rights = [[f"{grant.topic}:{right}" for grant in each.grants for right in grant.rights] for each in found]
    rows = [
        (each.name, str(each.role), each.describe(now), moment(each.until_us), ", ".join(its), each.attempts)
        for each, its in zip(found, rights, strict=True)
    ]
    columns = ["entity", "role", "standing", "until", "grants", "attempts"]
    document = {"invitations": [dict(zip(columns, row, strict=True)) for row in rows]}
    for described, its in zip(document["invitations"], rights, strict=True):
        described["grants"] = its
    talk.answer_table(document, columns, rows, "nobody was invited: sealcast entity invite NAME")


@app.command("list", epilog="Example: sealcast entity list")
def list_() -> None:
    """List everyone who was ever enrolled."""
    state = talk.open_realm(afar=True).state()
    rows = [
        (
            e.name,
            f"revoked at version {e.revoked_at_version}" if e.revoked else "enrolled",
            ", ".join(sorted(e.roles)),
            moment(e.expires_us),
            sum(e.name in t.slots for t in state.topics.values()),
            e.verify_key.hex(),
        )
        for e in state.entities.values()
    ]
    document = {"entities": [_describe(state, e) for e in state.entities.values()]}
    columns = ["entity", "standing", "roles", "certified until", "subscribed topics", "verify key"]
    talk.answer_table(document, columns, rows, "nobody yet: sealcast entity enrol NAME")


@app.command(epilog="Example: sealcast entity renew --due")
def renew(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Whose certificates to renew.", autocompletion=completing.everybody),
    ] = None,
    due: Annotated[bool, typer.Option("--due", help="Renew all that are past half of their life.")] = False,
) -> None:
    """Give entities their next certificates, for the keys and roles that they have.

    Certificates live for 90 days. To renew them at half of their life, run `sealcast entity renew --due` once a day.
    """
    if bool(names) == due:
        raise typer.BadParameter("name entities, or give --due")
    here = talk.open_realm()
    renewed = here.renew_due(names or None, at_half_life=due)
    state = here.state()
    said = (f"{entity.name!r} has a certificate until {moment(entity.expires_us)}" for entity in renewed)
    talk.answer({"entities": [_describe(state, e) for e in renewed]}, *said, empty="nothing is due")


@app.command(epilog="Example: sealcast entity browser alice --to alice.p12 --root market.pem")
def browser(
    name: Known,
    to: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it: a new PKCS #12 file.")],
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Holds the password for it [default: ask on the terminal].")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the realm's root certificate (PEM) here.")
    ] = None,
) -> None:
    """Write an entity's certificate and its key for a browser, which opens the console of a gateway with them.

    Import the file into the browser, and the root certificate as an authority for web sites. The key proves who asks.
    It opens no events and signs none. Whoever has it and the password is the entity to every gateway, until the
    certificate ends or is revoked: delete the file after importing it.
    """
    from sealcast.log.files import opened
    from sealcast.primitives import pkcs12, x509

    here = talk.open_realm(afar=True)
    identity, state = here.identity(name), here.state()
    certificate, trust = state.entity(name).certificate, here.trust(state)
    trust.verify(certificate, here.clock(), state.revoked, name=name)
    password = _password(password_file)
    made = pkcs12.bundle(name, identity.key, certificate, [trust.issuer_of(certificate)], password)
    try:
        with opened(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
            os.write(file, made)
    except OSError as error:
        raise Misuse(f"{to} cannot be written: {os.strerror(error.errno or 0)}", hint="name a new file") from None
    if root is not None:
        root.write_bytes(x509.pem(trust.root.der))
    document = {"entity": name, "file": str(to), "until": moment(state.entity(name).expires_us)}
    talk.answer(document, f"{to} is {name!r} to gateways until {document['until']}: import it, then delete it")


def _password(file: Path | None) -> Secret:
    """From a file of one's own, or from the terminal, twice."""
    from sealcast.primitives.passphrase import from_text
    from sealcast.trust.vault import private

    if file is not None:
        if not file.exists():
            raise NotFound(f"{file} does not exist", hint="write the password into it, readable by you alone")
        return from_text(private.read(file, _MAX_PASSWORD_BYTES).decode(errors="replace").rstrip("\r\n"))
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask on: name a file with it", param_hint="--password-file")
    return from_text(typer.prompt("password for the file", hide_input=True, confirmation_prompt=True, err=True))


@app.command(epilog="Example: sealcast entity revoke mallory --cause key-compromise")
def revoke(
    name: Known,
    cause: Annotated[Cause, typer.Option(help="The cause that the revocation list gives.")] = Cause.UNSPECIFIED,
) -> None:
    """Revoke an entity for good, on every topic, and its certificate with it.

    From the next batch on, nothing that it publishes is admitted, and nothing is sealed for it. Its name is never used
    again. To take single rights away, see `sealcast revoke`.
    """
    here = talk.open_realm()
    version = here.revoke_entity(name, cause)
    state = here.state()
    said = f"entity {name!r} revoked at version {version}, from the next batch on"
    talk.answer(_describe(state, state.entity(name)), said)


def _grants(name: str, given: list[str]) -> tuple[Grant, ...]:
    """TOPIC:RIGHT, several rights of a topic in one change."""
    from sealcast.trust.realm.changes import Grant, Right

    by_topic: dict[str, list[Right]] = {}
    for text in given:
        topic, _, right = text.rpartition(":")
        if not topic or right not in Right._value2member_map_:
            raise typer.BadParameter(
                f"{text!r} is no right: write TOPIC:publish or TOPIC:subscribe", param_hint="--grant"
            )
        by_topic.setdefault(topic, []).append(Right(right))
    return tuple(Grant(topic, name, tuple(dict.fromkeys(rights))) for topic, rights in by_topic.items())


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
        "certificate": {"serial": f"{entity.serials[-1]:x}", "until": moment(entity.expires_us)},
        "verify_key": entity.verify_key.hex(),
        "kem_public": entity.kem_public.hex(),
    }
