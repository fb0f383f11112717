"""sealcast token: asking for one, what it says, and whether this realm takes it."""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealcast.cli import talk, times
from sealcast.errors import Misuse, TokenRejected, Unavailable

if TYPE_CHECKING:
    from sealcast.trust.deployment import Realm
    from sealcast.trust.realm.changes import Right
    from sealcast.trust.tokens.token import Token, TokenReason

app = talk.Commands("Tokens: a key center's signed word on what an entity may do on a topic.")

#: A token has 2 KiB at most, and twice that as hexadecimal text; more is read only to be refused by its size.
_MOST: Final = 1 << 14
_HEX: Final = re.compile(rb"\s*(?:[0-9a-fA-F]{2}\s*)+")
_BASE64: Final = re.compile(rb"\s*[A-Za-z0-9+/_-]+={0,2}\s*")


@app.command(epilog="Example: sealcast token inspect alice.token --realm market")
def inspect(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="The token, in bytes or as hexadecimal or base64 text.")
    ],
    at: Annotated[str | None, typer.Option(metavar="TIME", help="Judge it as of this time [default: now].")] = None,
) -> None:
    """Show a token's claims, and check whether the realm accepts it, if one is found.

    The token is judged as if its owner showed it, on the topic that it is for. The exit code is 1 if this is not a
    token, or if the realm refuses it; the reason names the check that failed. A token is not secret: it is of no use
    without its owner's key.
    """
    from sealcast.trust.deployment import now_us
    from sealcast.trust.tokens import token as tokens

    data = _read(file)
    token = tokens.parse(data)
    moment = now_us() if at is None else times.microseconds(at, "--at")
    found = {"file": file, "bytes": len(data), **_said(token), "at": times.moment(moment)}
    found |= {"time": _time(token, moment), **_judged(data, token, moment, talk.realm_around())}
    if not talk.emitted(found):
        _show(found)
    if found["verifies"] is False:
        raise typer.Exit(1)


@app.command(epilog="Example: sealcast token request quotes --as alice --right subscribe --out alice.token")
def request(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    as_: talk.AsOption,
    right: Annotated[str, typer.Option(metavar="RIGHT", help="publish or subscribe.")] = "publish",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the token into this file.")] = None,
) -> None:
    """Ask a topic's key center for a new token and the key that goes with it, and keep both for the entity's clients.

    The request is signed by the entity, travels over the center's control topic, and is answered for that entity alone.
    Clients ask for tokens by themselves. This shows what they get, or why they get none.
    """
    from sealcast.control.wallet import Wallet
    from sealcast.trust.realm.changes import Right
    from sealcast.trust.tokens import token as tokens

    if right not in tuple(Right):
        raise typer.BadParameter(f"a right is {' or '.join(Right)}, not {right!r}")
    here = talk.open_realm(afar=True)
    here.state().topic(topic)
    with Wallet(here, as_) as wallet:
        held = wallet.ask(topic, Right(right))
    if out is not None:
        out.write_bytes(held.token)
    keys = {"token": held.token.hex(), "keys": sorted(held.given.pair_keys)}
    talk.answer(
        {"topic_name": topic, **_said(tokens.parse(held.token)), **keys},
        f"{as_!r} may {_words(held.claims.rights)} on {topic!r} in epoch {held.epoch}, "
        f"{held.claims.template}, until {times.moment(held.claims.expires_us)}",
    )
    if out is None and not talk.given.json:
        talk.note(f"see it: sealcast token request {topic} --as {as_} --right {right} --out FILE")


def _read(file: str) -> bytes:
    if file == "-":
        data = sys.stdin.buffer.read(_MOST)
    else:
        with Path(file).open("rb") as source:
            data = source.read(_MOST)
    # No token is text: its first byte is a tag of CBOR.
    if _HEX.fullmatch(data):
        return bytes.fromhex(data.decode())
    if _BASE64.fullmatch(data):
        text = data.strip().translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
        try:
            return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
        except binascii.Error:
            return data
    return data


def _said(token: Token) -> dict[str, Any]:
    claims = token.claims
    return {
        "digest": token.digest.hex(),
        "signed_with": f"ECDSA P-256 and {token.hash}",
        "issuer": claims.issuer,
        "issuer_certificate": claims.issuer_certificate.hex(),
        "subject": claims.subject,
        "subject_certificate": claims.subject_certificate.hex(),
        "subject_serial": f"{claims.subject_serial:x}",
        "holder_key": claims.holder_key.hex(),
        "realm": claims.realm.hex(),
        "topic": claims.topic.hex(),
        "template": str(claims.template),
        "rights": sorted(map(str, claims.rights)),
        "epoch": claims.epoch,
        "not_before": times.moment(claims.not_before_us),
        "expires": times.moment(claims.expires_us),
        "issued": times.moment(claims.issued * 1_000_000),
        "id": claims.id.hex(),
    }


def _time(token: Token, moment: int) -> str:
    """Says whether the token is valid at a moment, by its own times. How far clocks may differ, the topic says."""
    if moment < token.claims.not_before_us:
        return "not yet valid"
    return "valid" if moment < token.claims.expires_us else "expired"


def _judged(data: bytes, token: Token, moment: int, realm: Realm | None) -> dict[str, Any]:
    """Whether the realm takes it; `verifies` is None where nobody could be asked."""
    from sealcast.trust.tokens.gates import gate_of
    from sealcast.trust.tokens.token import TokenReason

    if realm is None:
        return {"verifies": None, "why": "no realm was found to ask", "hint": "name one with --realm DIR"}
    try:
        state = realm.state()
        gate = gate_of(state)
    except (Misuse, Unavailable) as error:
        return {"verifies": None, "why": error.message, "hint": error.hint}
    claims = token.claims
    topic = next((t.topic for t in state.topics.values() if t.topic.id == claims.topic), None)
    if topic is None:
        other = claims.realm != realm.id
        why = f"it is for a topic of another realm than {realm.name!r}" if other else "no topic here has that id"
        reason = TokenReason.REALM if other else TokenReason.AUDIENCE
        return _refused(reason, why, "ask the realm it was made for: --realm DIR")
    try:
        gate.verify(data, topic, moment, min(claims.rights), claims.holder_key, holder=claims.subject)
    except TokenRejected as error:
        reason = TokenReason(error.reason)
        return _refused(reason, error.message, error.hint) | {"check": reason.step, "topic_name": topic.name}
    if not claims.rights & state.rights_of(topic.name, claims.subject, moment):
        # Brokers also go by what was decided since the token was signed: it does not outlive the right.
        why = f"{claims.subject!r} may not {_words(claims.rights)} on {topic.name!r} any more, whatever its token says"
        hint = f"let it: sealcast grant {topic.name} {claims.subject} {' '.join(sorted(map(str, claims.rights)))}"
        refused = _refused(TokenReason.RIGHT, why, hint)
        return refused | {"check": TokenReason.RIGHT.step, "topic_name": topic.name}
    return {"verifies": True, "topic_name": topic.name}


def _refused(reason: TokenReason, why: str, hint: str | None) -> dict[str, Any]:
    return {"verifies": False, "reason": str(reason), "why": why, "hint": hint}


def _words(rights: Iterable[Right]) -> str:
    return " and ".join(sorted(map(str, rights)))


def _show(found: dict[str, Any]) -> None:
    verdict = {True: "taken by this realm", False: "refused by this realm", None: "not judged"}[found["verifies"]]
    talk.say(f"{found['file']}: a token of {found['bytes']} bytes, {verdict}")
    topic = f"{found['topic_name']} ({found['topic']})" if "topic_name" in found else found["topic"]
    talk.pairs(
        [
            ("issuer", f"{found['issuer']}\ncertificate {found['issuer_certificate']}"),
            ("subject", f"{found['subject']}\ncertificate {found['subject_certificate']}"),
            ("works with key", f"Ed25519 {found['holder_key']}"),
            ("topic", topic),
            ("template", found["template"]),
            ("rights", " and ".join(found["rights"])),
            ("epoch", found["epoch"]),
            ("valid", f"{found['not_before']} to {found['expires']}: {found['time']} at {found['at']}"),
            ("signed with", found["signed_with"]),
        ]
    )
    if found["verifies"] is not True:
        talk.say("")
        reason = f"{found['reason']}: " if "reason" in found else ""
        talk.pairs([("why", f"{reason}{found['why']}"), ("what next", found["hint"] or "")])
