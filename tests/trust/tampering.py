"""Bending envelopes and advertisements: each way has a name, what it makes, and the reason it must be refused for.

Two kinds of attacker. The *wire* alters bytes that it cannot open. The *insider* has a certificate and every key but
the ones it pretends to have: it opens, alters, and seals again properly, so that only the check in question stands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sealcast.control.envelopes import ControlMessage, EnvelopeParty
from sealcast.primitives import hpke
from sealcast.primitives.encoding import joined
from sealcast.trust.certificates.certificate import Role
from sealcast.wire import cbor
from sealcast.wire.cose import sig_structure
from tests.trust.control_world import REALM, SECOND, World

Bend = Callable[["Case"], bytes]
FLIPS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999)


@dataclass(frozen=True)
class Cast:
    """The people of every case: made once, certificates cost time."""

    world: World
    alice: EnvelopeParty
    mallory: EnvelopeParty
    center: EnvelopeParty
    other: EnvelopeParty
    expired: EnvelopeParty
    early: EnvelopeParty
    revoked: EnvelopeParty
    stranger: EnvelopeParty

    @classmethod
    def make(cls) -> Cast:
        world, elsewhere = World(), World(bytes(16))
        revoked = world.party("revoked")
        world.revoke(revoked)
        return cls(
            world,
            world.party("alice"),
            world.party("mallory"),
            world.party("center", Role.KEY_CENTER),
            world.party("other", Role.KEY_CENTER),
            world.party("expired", at_us=world.now - 7200 * SECOND, lifetime_us=3600 * SECOND),
            world.party("early", at_us=world.now + 3600 * SECOND),
            revoked,
            elsewhere.party("stranger"),
        )


def flipped(data: bytes, where: float) -> bytes:
    at = min(int(len(data) * where), len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@dataclass(frozen=True)
class Signed:
    """A COSE_Sign1 in the making; what is not replaced is as it should be."""

    party: EnvelopeParty
    payload: Any
    bound: bytes
    certificate: Any = None
    header: Any = None
    unprotected: Any = None
    signature: Callable[[bytes], Any] | None = None
    tag: int = 18
    parts: Callable[[list[Any]], list[Any]] | None = None
    after: Callable[[bytes], bytes] | None = None

    def __bytes__(self) -> bytes:
        certificate = self.party.certificate if self.certificate is None else self.certificate
        protected = cbor.encode({1: -7, 33: certificate} if self.header is None else self.header)
        payload = self.payload if isinstance(self.payload, bytes) else cbor.encode(self.payload)
        made: Any = self.party.signer.sign(sig_structure(protected, self.bound, payload))
        made = made if self.signature is None else self.signature(made)
        payload = payload if self.after is None else self.after(payload)
        parts = [protected, {} if self.unprotected is None else self.unprotected, payload, made]
        return cbor.encode(cbor.TaggedValue(self.tag, parts if self.parts is None else self.parts(parts)))


ALGORITHMS = {
    "ES384": -35,
    "ES512": -36,
    "EdDSA": -8,
    "Ed25519": -19,
    "HS256": 5,
    "none": 0,
    "bool": True,
    "text": "ES256",
}
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def bent_signatures() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(name, reason, how) of everything that can be wrong with a COSE_Sign1, whatever it carries."""
    for name, number in ALGORITHMS.items():
        yield f"algorithm {name}", "algorithm", {"header": lambda c, n=number: {1: n, 33: c}}
    yield "no algorithm", "form", {"header": lambda c: {33: c}}
    yield "no certificate", "form", {"header": lambda c: {1: -7}}
    yield "a critical header more", "form", {"header": lambda c: {1: -7, 2: [1], 33: c}}
    yield "a key id more", "form", {"header": lambda c: {1: -7, 4: b"center", 33: c}}
    yield "a header that is a list", "form", {"header": lambda c: [1, -7, 33, c]}
    yield "a chain instead of a certificate", "form", {"header": lambda c: {1: -7, 33: [c, c]}}
    yield "a certificate too large", "form", {"header": lambda c: {1: -7, 33: c + bytes(4096)}}
    yield "an empty certificate", "form", {"header": lambda c: {1: -7, 33: b""}}
    yield "an algorithm outside", "form", {"unprotected": {1: -7}}
    yield "another COSE message", "form", {"tag": 17}
    yield "a part too few", "form", {"parts": lambda p: p[:3]}
    yield "a part too many", "form", {"parts": lambda p: [*p, b""]}
    yield "no payload", "form", {"parts": lambda p: [p[0], p[1], None, p[3]]}
    yield "a payload of text", "form", {"parts": lambda p: [p[0], p[1], "payload", p[3]]}
    for where in FLIPS:
        yield f"signature flipped at {where}", "signature", {"signature": lambda s, w=where: flipped(s, w)}
    yield "no signature", "signature", {"signature": lambda s: b""}
    yield "signature cut", "signature", {"signature": lambda s: s[:-1]}
    yield "signature and a byte", "signature", {"signature": lambda s: s + b"\0"}
    yield "signature of zeros", "signature", {"signature": lambda s: bytes(64)}
    yield "signature with r = 0", "signature", {"signature": lambda s: bytes(32) + s[32:]}
    yield "signature with s = 0", "signature", {"signature": lambda s: s[:32] + bytes(32)}
    yield "signature with s = n", "signature", {"signature": lambda s: s[:32] + _ORDER.to_bytes(32, "big")}
    yield "halves exchanged", "signature", {"signature": lambda s: s[32:] + s[:32]}


def bent_certificates(cast: Cast, good: EnvelopeParty) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(name, reason, how): certificates that do not make `good`'s signature anybody's."""
    for where in (*FLIPS, 0.2, 0.3, 0.4, 0.6, 0.65, 0.7):
        yield f"certificate flipped at {where}", "certificate", {"certificate": flipped(good.certificate, where)}
    yield "certificate cut", "certificate", {"certificate": good.certificate[:-1]}
    yield "certificate and a byte", "certificate", {"certificate": good.certificate + b"\0"}
    yield "noise for a certificate", "certificate", {"certificate": os.urandom(600)}
    yield "the authority's certificate", "certificate", {"certificate": cast.world.authority.issuing.der}
    yield "the root's certificate", "certificate", {"certificate": cast.world.authority.root.der}
    yield "another's certificate", "signature", {"certificate": cast.mallory.certificate}
    for name in ("expired", "early", "revoked", "stranger"):
        yield f"signed by {name}", "certificate", {"party": getattr(cast, name)}


# --- envelopes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A request of alice to the center, sealed by hand, so that any part can be another."""

    cast: Cast
    message: ControlMessage

    @classmethod
    def of(cls, cast: Cast) -> Case:
        return cls(cast, ControlMessage("echo", b"what is it", bytes(range(16)), cast.world.now, bytes(range(16, 32))))

    @property
    def fields(self) -> dict[Any, Any]:
        m, to = self.message, self.cast.center
        return {1: m.kind, 2: to.name, 3: to.kem.public, 4: m.request_id, 5: m.time_us, 6: m.reply_topic, 7: m.body}

    def bound(self, way: str = "request", realm: bytes = REALM) -> bytes:
        return joined((b"sealcast envelope 1", way.encode(), realm))

    def inside(self, fields: Any = None, **how: Any) -> bytes:
        header = how.pop("header", None)
        party = how.pop("party", self.cast.alice)
        how.setdefault("bound", self.bound())
        if header is not None:
            how["header"] = header(party.certificate)
        return bytes(Signed(party, self.fields if fields is None else fields, **how))

    def sealed(self, opened: bytes, **how: Any) -> bytes:
        to: EnvelopeParty = how.get("to", self.cast.center)
        place = joined((how.get("name", to.name).encode(), to.kem.public))
        return hpke.seal(to.kem.public, opened, how.get("info", self.bound()), how.get("aad", place))

    def outside(self, sealed: Any, way: Any = 1) -> bytes:
        return cbor.encode(["sealcast-envelope", 1, way, sealed])

    def envelope(self, fields: Any = None, **how: Any) -> bytes:
        """The whole of it, with the signed part bent."""
        return self.outside(self.sealed(padded(self.inside(fields, **how))))

    def padded(self, bend: Callable[[bytes], bytes]) -> bytes:
        """The whole of it, with the padding bent."""
        return self.outside(self.sealed(bend(self.inside())))

    def without(self, label: int) -> bytes:
        return self.envelope({k: v for k, v in self.fields.items() if k != label})

    def having(self, label: int, value: Any) -> bytes:
        return self.envelope({**self.fields, label: value})


def padded(inside: bytes) -> bytes:
    size = 4 + len(inside)
    room = max(2048, 1 << (size - 1).bit_length())
    return len(inside).to_bytes(4, "big") + inside + bytes(room - size)


_WRONG: dict[int, list[tuple[str, Any]]] = {
    1: [
        ("a kind of bytes", b"echo"),
        ("an empty kind", ""),
        ("a kind too long", "e" * 49),
        ("a kind unseen", "ec\x07o"),
    ],
    2: [("a recipient of bytes", b"center"), ("an empty recipient", ""), ("a recipient too long", "c" * 65)],
    3: [("a key too short", bytes(31)), ("a key too long", bytes(33)), ("a key of text", "k" * 32), ("no key", None)],
    4: [("an id too short", bytes(15)), ("an id too long", bytes(17)), ("an id that counts", 7), ("no id", None)],
    5: [("a time before 1970", -1), ("a time of text", "now"), ("a time that is true", True), ("a far time", 2**63)],
    6: [
        ("no reply topic", None),
        ("a short reply topic", bytes(15)),
        ("a long one", bytes(17)),
        ("a path", "../../etc"),
    ],
    7: [("a body of text", "body"), ("no body", None), ("a body of maps", {1: 2})],
}


def bent_envelopes(cast: Cast) -> dict[str, tuple[str, Bend]]:
    """name -> (reason, how to make it)."""
    cases: dict[str, tuple[str, Bend]] = {}

    def add(name: str, reason: str, bend: Bend) -> None:
        assert name not in cases, name
        cases[name] = (reason, bend)

    # The wire: bytes it cannot open.
    add("nothing", "form", lambda c: b"")
    add("noise", "form", lambda c: b"\xff" * 300)
    add("too large", "size", lambda c: c.outside(bytes(2 << 20)))
    add("truncated", "form", lambda c: c.envelope()[:-1])
    add("a byte follows", "form", lambda c: c.envelope() + b"\0")
    add("an indefinite array", "form", lambda c: b"\x9f" + c.envelope()[1:] + b"\xff")
    add("a map", "form", lambda c: cbor.encode({1: b"envelope"}))
    add("a frame's magic", "form", lambda c: cbor.encode(["sealcast-frame", 1, 1, b""]))
    add("a later version", "version", lambda c: cbor.encode(["sealcast-envelope", 2, {}]))
    add("version true", "form", lambda c: cbor.encode(["sealcast-envelope", True, 1, b""]))
    add("a part too few", "form", lambda c: cbor.encode(["sealcast-envelope", 1, 1]))
    add("a part too many", "form", lambda c: cbor.encode(["sealcast-envelope", 1, 1, b"", b""]))
    add("sealed as text", "form", lambda c: c.outside("sealed"))
    add("a reply", "way", lambda c: c.outside(c.sealed(padded(c.inside()), info=c.bound("reply")), 2))
    add("a third way", "way", lambda c: c.outside(b"", 3))
    add("way true", "form", lambda c: c.outside(b"", True))
    add("nothing sealed", "seal", lambda c: c.outside(b""))
    for where in FLIPS:
        add(
            f"sealed flipped at {where}", "seal", lambda c, w=where: c.outside(flipped(c.sealed(padded(c.inside())), w))
        )
    add("sealed cut", "seal", lambda c: c.outside(c.sealed(padded(c.inside()))[:-1]))
    # Whoever has the recipient's public key: seals for another purpose.
    add("sealed to another", "seal", lambda c: c.outside(c.sealed(padded(c.inside()), to=c.cast.other)))
    add("sealed under another name", "seal", lambda c: c.outside(c.sealed(padded(c.inside()), name="other")))
    add(
        "sealed in another realm",
        "seal",
        lambda c: c.outside(c.sealed(padded(c.inside()), info=c.bound("request", bytes(16)))),
    )
    add("sealed as a reply", "seal", lambda c: c.outside(c.sealed(padded(c.inside()), info=c.bound("reply"))))
    add("sealed as nothing", "seal", lambda c: c.outside(c.sealed(padded(c.inside()), info=b"", aad=b"")))
    add("no padding", "signed", lambda c: c.padded(lambda i: len(i).to_bytes(4, "big") + i))
    add("padding that speaks", "signed", lambda c: c.padded(lambda i: padded(i)[:-1] + b"\x01"))
    add("a bucket too large", "signed", lambda c: c.padded(lambda i: padded(i) + bytes(2048)))
    add("a length beyond the end", "signed", lambda c: c.padded(lambda i: (1 << 20).to_bytes(4, "big") + padded(i)[4:]))
    add("a length of zero", "signed", lambda c: c.padded(lambda i: bytes(2048)))
    add("sealed emptiness", "signed", lambda c: c.padded(lambda i: b""))
    # The insider: signs and seals properly, and one thing is wrong.
    for name, reason, how in bent_signatures():
        said = "signed" if reason in ("form", "algorithm") else reason
        add(f"insider: {name}", said, lambda c, h=how: c.envelope(**h))
    for name, reason, how in bent_certificates(cast, cast.alice):
        add(f"insider: {name}", reason, lambda c, h=how: c.envelope(**h))
    add("signed for another realm", "signature", lambda c: c.envelope(bound=c.bound("request", bytes(16))))
    add("signed as a reply", "signature", lambda c: c.envelope(bound=c.bound("reply")))
    add(
        "signed as an advertisement",
        "signature",
        lambda c: c.envelope(bound=joined((b"sealcast advertisement 1", REALM))),
    )
    for where in FLIPS:
        add(f"payload flipped at {where}", "signature", lambda c, w=where: c.envelope(after=lambda p: flipped(p, w)))
    for label, values in _WRONG.items():
        add(f"field {label} missing", "payload", lambda c, n=label: c.without(n))
        for name, value in values:
            add(name, "payload", lambda c, n=label, v=value: c.having(n, v))
    add("a field more", "payload", lambda c: c.having(8, b""))
    add("a named field", "payload", lambda c: c.having("kind", "echo"))
    add("a payload that is a list", "payload", lambda c: c.envelope(list(c.fields.values())))
    add("an empty payload", "payload", lambda c: c.envelope(b""))
    add("a payload out of order", "payload", lambda c: c.envelope(_unordered(c.fields)))
    add("meant for another name", "recipient", lambda c: c.having(2, "other"))
    add("meant for another key", "recipient", lambda c: c.having(3, c.cast.other.kem.public))
    add("a kind nobody knows", "kind", lambda c: c.having(1, "echoes"))
    add("a kind in other letters", "kind", lambda c: c.having(1, "Echo"))
    add("from the future", "early", lambda c: c.having(5, c.cast.world.now + 31 * SECOND))
    add("from the year 9999", "early", lambda c: c.having(5, 253_402_300_799_999_999))
    add("too old", "late", lambda c: c.having(5, c.cast.world.now - 301 * SECOND))
    add("of 1970", "late", lambda c: c.having(5, 0))
    return cases


def _unordered(fields: dict[Any, Any]) -> bytes:
    """The same map with its keys in another order: another spelling of the same."""
    pairs = [cbor.encode(k) + cbor.encode(v) for k, v in reversed(fields.items())]
    return bytes([0xA0 | len(pairs)]) + b"".join(pairs)
