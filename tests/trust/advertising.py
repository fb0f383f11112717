"""Advertisements made by hand, so that any part of one can be another; and what each must be refused for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sealcast.control.discovery.advertisements import Advertisement, What
from sealcast.control.discovery.restrictions import Restrictions
from sealcast.control.envelopes import EnvelopeParty
from sealcast.model.schema import Schema
from sealcast.primitives.encoding import joined
from tests.trust.control_world import NOW, REALM, SECOND
from tests.trust.tampering import FLIPS, Cast, Signed, bent_certificates, bent_signatures, flipped

HOUR = 3_600 * SECOND
SCHEMA = Schema.from_json(
    {"attributes": [{"name": "symbol", "type": "string"}, {"name": "price", "type": "decimal", "step": "0.01"}]}
)
PLAIN: dict[Any, Any] = {
    1: bytes(range(16)),
    2: "topic",
    3: "market.nyse",
    4: {"Sports": "NBA"},
    5: None,
    6: None,
    7: "open",
    8: 7,
    9: NOW - HOUR,
    10: NOW + HOUR,
    11: False,
}


def topic(path: str = "market.nyse", id: bytes | None = None, **fields: Any) -> Advertisement:
    """A topic that is advertised; what is not said is as simple as can be."""
    given: dict[str, Any] = {"sequence": 1, "issued_us": NOW, "expires_us": NOW + HOUR, **fields}
    if isinstance(given.get("restrictions"), str):
        given["restrictions"] = Restrictions.parse(given["restrictions"])
    return Advertisement(path.encode().ljust(16, b"\0")[:16] if id is None else id, What.TOPIC, path, **given)


@dataclass(frozen=True)
class Bent:
    """How one advertisement is bent, and what for it is refused."""

    reason: str
    make: Callable[[Cast], bytes]


def by_hand(cast: Cast, fields: Any = None, **how: Any) -> bytes:
    header = how.pop("header", None)
    party: EnvelopeParty = how.pop("party", cast.alice)
    how.setdefault("bound", joined((b"sealcast advertisement 1", REALM)))
    if header is not None:
        how["header"] = header(party.certificate)
    return bytes(Signed(party, PLAIN if fields is None else fields, **how))


_WRONG: dict[int, list[tuple[str, Any]]] = {
    1: [("an id too short", bytes(15)), ("an id too long", bytes(17)), ("an id of text", "i" * 16)],
    2: [("an offer unheard of", "castle"), ("an offer of bytes", b"topic"), ("an offer of nothing", None)],
    3: [
        ("an empty path", ""),
        ("a path too long", "p" * 65),
        ("a path with slashes", "../../etc"),
        ("a path of ü", "ü"),
    ],
    4: [
        ("tags in a list", ["Sports", "NBA"]),
        ("a tag that counts", {"Sports": 7}),
        ("an empty tag", {"": "NBA"}),
        ("an empty value", {"Sports": ""}),
        ("an unseen tag", {"Sp\x00rts": "NBA"}),
        ("a tag by number", {7: "NBA"}),
        ("tags without end", {f"tag {i}": "x" for i in range(33)}),
    ],
    5: [("a schema of text", "{}"), ("a schema of noise", b"\xff"), ("a schema without attributes", b"{}")],
    6: [("a short control topic", bytes(8)), ("a control topic of text", "topic")],
    8: [
        ("a sequence of text", "7"),
        ("a sequence below zero", -1),
        ("a sequence too far", 2**63),
        ("sequence true", True),
    ],
    9: [("issued before 1970", -1), ("issued in words", "now")],
    10: [("expires never", None), ("expires beyond time", 2**63)],
    11: [("withdrawn perhaps", None), ("withdrawn once", 1)],
}
_RESTRICTIONS: list[tuple[str, Any]] = [
    ("no restrictions", None),
    ("restrictions that are empty", []),
    ("an alternative that is empty", [[]]),
    ("a condition that is empty", [[["name", []]]]),
    ("a credential unheard of", [[["shoe size", ["44"]]]]),
    ("a name that is none", [[["name", ["a b"]]]]),
    ("a role that is none", [[["role", ["king"]]]]),
    ("a serial in hex", [[["serial", ["0x1f"]]]]),
    ("a key too short", [[["key", ["abcd"]]]]),
    ("a value twice", [[["name", ["alice", "alice"]]]]),
    ("a value that counts", [[["serial", [7]]]]),
    ("restrictions of text", "everyone"),
    ("restrictions of bytes", b"open"),
    ("a condition of three", [[["name", ["alice"], "x"]]]),
    ("alternatives without end", [[["name", ["alice"]]]] * 33),
]


def bent_advertisements(cast: Cast) -> dict[str, Bent]:
    """name -> how it is bent."""
    cases: dict[str, Bent] = {}

    def add(name: str, reason: str, make: Callable[[Cast], bytes]) -> None:
        assert name not in cases, name
        cases[name] = Bent(reason, make)

    def fields(name: str, reason: str, **changed: Any) -> None:
        add(name, reason, lambda c: by_hand(c, {**PLAIN, **{int(k[1:]): v for k, v in changed.items()}}))

    add("nothing", "form", lambda c: b"")
    add("noise", "form", lambda c: b"\xff" * 200)
    add("too large", "size", lambda c: by_hand(c, {**PLAIN, 5: bytes(70_000)}))
    add("truncated", "form", lambda c: by_hand(c)[:-1])
    add("a byte follows", "form", lambda c: by_hand(c) + b"\0")
    for name, reason, how in (*bent_signatures(), *bent_certificates(cast, cast.alice)):
        add(name, reason, lambda c, h=how: by_hand(c, **h))
    for where in FLIPS:
        add(f"payload flipped at {where}", "signature", lambda c, w=where: by_hand(c, after=lambda p: flipped(p, w)))
    add("of another realm", "signature", lambda c: by_hand(c, bound=joined((b"sealcast advertisement 1", bytes(16)))))
    add(
        "an envelope's inside",
        "signature",
        lambda c: by_hand(c, bound=joined((b"sealcast envelope 1", b"request", REALM))),
    )
    for label, values in _WRONG.items():
        add(
            f"field {label} missing",
            "payload",
            lambda c, n=label: by_hand(c, {k: v for k, v in PLAIN.items() if k != n}),
        )
        for name, value in values:
            fields(name, "payload", **{f"_{label}": value})
    fields("a field more", "payload", _12="more")
    add("a payload that is a list", "payload", lambda c: by_hand(c, list(PLAIN.values())))
    add("a service that listens nowhere", "payload", lambda c: by_hand(c, {**PLAIN, 2: "key-center"}, party=c.center))
    for name, value in _RESTRICTIONS:
        fields(name, "restrictions", _7=value)
    fields("ends before it begins", "lifetime", _9=NOW + HOUR, _10=NOW)
    fields("lives no time", "lifetime", _9=NOW, _10=NOW)
    fields("lives for ever", "lifetime", _10=NOW + 400 * 24 * HOUR)
    fields("not issued yet", "early", _9=NOW + 31 * SECOND)
    fields("expired", "expired", _10=NOW - 1)
    fields("expires now", "expired", _10=NOW)
    for what in ("key-center", "broker", "discovery"):
        fields(f"an entity that would be a {what}", "role", _2=what, _6=bytes(16))
    add(
        "a key center that would be a broker",
        "role",
        lambda c: by_hand(c, {**PLAIN, 2: "broker", 6: bytes(16)}, party=c.center),
    )
    return cases
