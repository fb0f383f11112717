"""sealcast authority: show, succeed, replace, appoint, crl."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk, times
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from sealcast.trust.certificates.certificate import Certificate
    from sealcast.trust.deployment import Realm
    from sealcast.trust.realm.state import RealmState

app = talk.Commands("The realm's authority: its root, its chain, its revocation lists.")


@app.command(epilog="Example: sealcast authority show")
def show() -> None:
    """Show whom the realm believes: the root, the authorities under it, and what was revoked.

    Before you rely on the root's fingerprint, compare it over another channel, such as the telephone. Everything shown
    is public. The last column says which private keys are on this machine.
    """
    here = talk.open_realm()
    state = here.state()
    trust = here.trust(state)
    chain = [_describe(here, each) for each in (trust.root, *trust.intermediates)]
    lists = {
        "number": state.revoked.number,
        "revoked": len(state.revoked.entries),
        "at": times.moment(state.revoked.at_us) if state.revoked.number else None,
    }
    if talk.emitted(
        {"realm": here.id.hex(), "root": trust.root.fingerprint.hex(), "chain": chain, "revocations": lists}
    ):
        return
    talk.pairs(
        [
            ("realm", here.id.hex()),
            ("root", trust.root.fingerprint.hex()),
            ("revocations", f"list {lists['number']}, {lists['revoked']} revoked"),
        ]
    )
    talk.say("")
    columns = ("name", "standing", "from", "until", "issued", "key")
    talk.table(columns, [[each[column] for column in columns] for each in chain], "")


@app.command(epilog="Example: sealcast authority succeed")
def succeed() -> None:
    """Make the next authority under the root, which issues certificates from now on.

    Do this when half of the present authority's life is over. Certificates that were issued before stay valid. This
    needs the root's key, secrets/authority/root.key: bring it back for this command, and take it away again.
    """
    here = talk.open_realm()
    made = here.succeed_authority()
    said = f"{made.name!r} issues from now on, until {times.moment(made.not_after_us)}"
    talk.answer(_describe(here, made), said)


@app.command(epilog="Example: sealcast authority appoint")
def appoint() -> None:
    """Replace the administrator's key, secrets/administrator.key, if it is lost or known to others.

    The root appoints a new key. Whatever the old one signs from then on is refused; what it signed before stays. This
    needs the root's key, secrets/authority/root.key.
    """
    here = talk.open_realm()
    number = here.appoint_administrator()
    said = f"a new key signs for the administrator from now on (appointment {number})"
    talk.answer({"number": number, "key": str(here.paths.administrator_key)}, said)


@app.command(epilog="Example: sealcast authority replace")
def replace() -> None:
    """Replace an authority whose key is lost, or known to others.

    In one step, the next authority is made, everyone gets a certificate from it for the keys they have, live
    subscriptions get new tokens, and the root revokes the previous authority. Whatever else its key signed is refused
    from then on. This needs the root's key, secrets/authority/root.key.
    """
    here = talk.open_realm()
    done = here.replace_authority()
    gone = [each.name for each in done.revoked]
    made = {"made": _describe(here, done.made), "revoked": gone}
    talk.answer(
        {**made, "renewed": done.certificates, "version": done.version},
        f"{done.made.name!r} issues from now on; revoked: {', '.join(gone)}; renewed: {done.certificates}",
    )


@app.command(epilog="Example: sealcast authority crl --pem --out market.crl")
def crl(
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write it [default: stdout].")] = None,
    number: Annotated[
        int | None,
        typer.Option(
            "--authority",
            metavar="N",
            min=0,
            help="Whose list to export; 0 is the root's [default: the newest].",
        ),
    ] = None,
    since: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Export only what was revoked after list N: a delta CRL.")
    ] = None,
    pem: Annotated[bool, typer.Option("--pem", help="Write text (PEM) instead of bytes (DER).")] = False,
) -> None:
    """Export a revocation list as an X.509 CRL (RFC 5280), for other tools.

    Each authority signs a list of its own, about the certificates that it issued. A verifier that checks the whole
    chain also wants the root's list (--authority 0); for that, the root's key must be on this machine. Sealcast itself
    uses its own lists.
    """
    from sealcast.log import files
    from sealcast.primitives import x509_lists

    if talk.given.json and out is None:
        raise Misuse("--json describes a list that was written to a file", hint="add --out FILE")
    here = talk.open_realm()
    authority = here.authority()
    authority.lists.update(here.state())
    if number is not None and number > len(authority.authorities):
        raise Misuse(
            f"there is no authority {number}", hint=f"there are {len(authority.authorities)}: sealcast authority show"
        )
    der = authority.crl(here.clock(), number, since)
    data = x509_lists.crl_pem(der) if pem else der
    if out is None:
        _print(data, pem)
        return
    files.replace_file(out.absolute(), data)
    listed, base, entries = x509_lists.crl_serials(der)
    document = {"file": str(out), "number": listed, "base": base, "entries": len(entries), "bytes": len(data)}
    kind = f"list {listed}" if base is None else f"what list {listed} adds to list {base}"
    talk.answer(document, f"{kind}, {len(entries)} revoked, in {out}")


def _print(data: bytes, text: bool) -> None:
    if text:
        talk.say(data.decode().rstrip())
    elif sys.stdout.isatty():
        raise Misuse("a list in DER is not text, and cannot be shown on a terminal", hint="add --pem, or --out FILE")
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _describe(here: Realm, one: Certificate) -> dict[str, object]:
    from sealcast.trust.certificates import certificate as certificates
    from sealcast.trust.certificates.authority_files import key_path

    number, state = certificates.generation(one), here.state()
    authorities = [each.serial for each in here.trust(state).intermediates]
    serials = [*authorities, *(s for who in state.entities.values() for s in who.serials)]
    return {
        "name": one.name,
        "number": number,
        "standing": _standing(one, state, here.clock()),
        "from": times.moment(one.not_before_us),
        "until": times.moment(one.not_after_us),
        "issued": sum(certificates.issued_by(s) == number for s in serials),
        "key": "here" if key_path(here.paths.authority, number).exists() else "elsewhere",
        "serial": f"{one.serial:032x}",
        "fingerprint": one.fingerprint.hex(),
    }


def _standing(one: Certificate, state: RealmState, now: int) -> str:
    from sealcast.trust.certificates import certificate as certificates

    if state.revoked.is_revoked(one.serial):
        return "revoked"
    if not one.not_before_us <= now <= one.not_after_us:
        return "expired" if now > one.not_after_us else "not yet valid"
    return "valid, renewal due" if certificates.renewal_due(one, now) else "valid"
