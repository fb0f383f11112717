"""Writes tokens.json beside this file: `python -m tests.vectors.make_tokens` from the repository's root.

A token is to be judged in a context: by whom (root, authorities, key centers), for which topic, when, for which right,
shown with which key, under which revocations. `context` is the usual one, and a vector says what differs in its own. A
vector with a `reason` must be refused for that reason, a word of `TokenReason`; one without is to
be taken. `flips` are the good token with one bit changed, in every byte: offset:mask under the reason.

Cases are named here with their reasons, as they should be; that the code agrees is for the tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sealcast.primitives.p256 import Hash, P256SigningKey
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.templates import Template
from sealcast.trust.tokens import claims as wire
from sealcast.trust.tokens.claims import (
    AUD,
    CERTIFICATE,
    CLAIMS,
    CNF,
    CTI,
    EPOCH,
    EXP,
    IAT,
    ISS,
    NBF,
    RIGHTS,
    SERIAL,
    SUB,
    TEMPLATE,
)
from sealcast.wire import cbor, cose
from tests.trust import token_world as world
from tests.trust.token_world import DAY, NOW, PARSED, SECOND, frame_key, identity, mint
from tests.vectors.make import _plain

HERE = Path(__file__).parent
FILE = HERE / "tokens.json"
KID = PARSED["center"].fingerprint
GOOD = mint()
PROTECTED, PAYLOAD, SIGNATURE = (lambda parts: (parts[0], parts[2], parts[3]))(
    cbor.decode(GOOD, tags=frozenset({18})).value
)
BODY: dict[int, Any] = cbor.decode(PAYLOAD)
Case = dict[str, Any]

#: What is checked of a token that is shown, if its vector says nothing else.
CONTEXT: Case = {
    "at_us": NOW,
    "need": "publish",
    "holder_key": frame_key("alice"),
    "holder": "alice",
    "revoked": [],
    "topic": {
        "name": "scores",
        "id": world.TOPIC,
        "schema": world.SCHEMA.to_json(),
        "epoch": 3,
        "epoch_starts": [0, 10, 20],
        "center": "center",
        "parameters": world.topic().parameters.to_json(),
    },
}


# --- making tokens that no honest center makes ----------------------------------------------------


def signed(
    payload: bytes, protected: bytes = PROTECTED, *, key: P256SigningKey | None = None, aad: bytes = wire.CONTEXT
) -> bytes:
    """Signed by the center's true key, whatever it says."""
    signature = (key or identity("center")).sign(cose.sig_structure(protected, aad, payload), Hash.SHA256)
    return wire.assemble(protected, payload, signature)


def claim(label: int, value: Any) -> bytes:
    return signed(cbor.encode({**BODY, label: value}))


def header(entries: dict[Any, Any]) -> bytes:
    return signed(PAYLOAD, cbor.encode(entries))


def outer(*parts: Any, tag: int = 18) -> bytes:
    return cbor.encode(cbor.TaggedValue(tag, list(parts)))


def raw_map(entries: list[tuple[bytes, bytes]], head: bytes | None = None) -> bytes:
    """A map in the order given, however wrong."""
    return (head or bytes([0xA0 | len(entries)])) + b"".join(k + v for k, v in entries)


ENTRIES = [(cbor.encode(k), cbor.encode(v)) for k, v in sorted(BODY.items(), key=lambda e: cbor.encode(e[0]))]
ALG, KEY_ID = (cbor.encode(1), cbor.encode(-7)), (cbor.encode(4), cbor.encode(KID))


# --- the table ------------------------------------------------------------------------------------


def good() -> Iterator[Case]:
    def case(why: str, token: bytes, **context: Any) -> Case:
        return {"why": why, "token": token, **context}

    yield case("plain", GOOD)
    for number in ("sha-384", "sha-512"):
        yield case(number, mint(hash=number), topic={"parameters": {"token_hash": number}})
    both = frozenset(Right)
    yield case("both rights", mint(rights=both), need="subscribe")
    yield case("a topic of the glob", mint(template=Template.parse("sc*s; Team=NYK, price=1.50, live=true, minute=90")))
    yield case("the first moment", GOOD, at_us=NOW - 3600 * SECOND - 300 * SECOND)
    yield case("the last moment", GOOD, at_us=NOW + 3600 * SECOND + 300 * SECOND - 1)
    yield case("the epoch before, in its grace", mint(epoch=2), at_us=NOW, topic={"epoch_starts": [0, 10, NOW]})
    yield case("no name came with it", GOOD, holder=None)
    yield case("a center of a later authority", mint("late-center"), topic={"center": "late-center"})
    yield case("another was revoked", GOOD, revoked=[str(world.BOB.serial)])


def seen_without_a_key() -> Iterator[tuple[str, str, bytes]]:
    """(why, reason, token) of what is refused before anything is verified; most of it is truly signed."""
    yield "no token", "absent", b""
    yield "one byte cut", "encoding", GOOD[:-1]
    yield "half of it", "encoding", GOOD[: len(GOOD) // 2]
    yield "a byte behind the end", "encoding", GOOD + b"\0"
    yield "twice", "encoding", GOOD + GOOD
    yield "longer than any", "size", GOOD + bytes(2048)
    yield "a length that claims the world", "encoding", b"\xd2\x84\x5b" + b"\xff" * 8
    yield "nested too deep", "encoding", b"\xd2" + b"\x81" * 64
    yield "text", "encoding", b"eyJhbGciOiJub25lIn0"
    yield "an array of indefinite length", "encoding", b"\xd2\x9f" + GOOD[2:] + b"\xff"
    yield "a tag not in its shortest form", "encoding", b"\xd8\x12" + GOOD[1:]
    yield "the CWT tag around it", "encoding", b"\xd8\x3d" + GOOD
    yield "COSE_Mac0", "encoding", b"\xd1" + GOOD[1:]
    yield "COSE_Sign", "encoding", b"\xd8\x62" + GOOD[1:]
    yield "no tag", "form", GOOD[1:]
    yield "three parts", "form", outer(PROTECTED, {}, PAYLOAD)
    yield "five parts", "form", outer(PROTECTED, {}, PAYLOAD, SIGNATURE, b"")
    yield "a key id in the open", "form", outer(PROTECTED, {4: KID}, PAYLOAD, SIGNATURE)
    yield "an algorithm in the open", "form", outer(PROTECTED, {1: -7}, PAYLOAD, SIGNATURE)
    yield "an open header that is no map", "form", outer(PROTECTED, [], PAYLOAD, SIGNATURE)
    yield "a header that is no byte string", "form", outer({1: -7, 4: KID}, {}, PAYLOAD, SIGNATURE)
    yield "detached claims", "form", outer(PROTECTED, {}, None, SIGNATURE)
    yield "claims as text", "form", outer(PROTECTED, {}, "claims", SIGNATURE)
    yield "no signature", "form", outer(PROTECTED, {}, PAYLOAD, b"")
    yield "a signature one byte short", "form", outer(PROTECTED, {}, PAYLOAD, SIGNATURE[:-1])
    yield "a signature one byte long", "form", outer(PROTECTED, {}, PAYLOAD, SIGNATURE + b"\0")
    yield "a signature as text", "form", outer(PROTECTED, {}, PAYLOAD, "s" * 64)
    yield "claims that are an array", "form", signed(cbor.encode(list(BODY)))
    yield "claims that are a number", "form", signed(cbor.encode(1))
    yield "an empty header", "encoding", signed(PAYLOAD, b"")
    yield "empty claims", "encoding", signed(b"")


def headers() -> Iterator[tuple[str, str, bytes]]:
    yield "no algorithm", "header", header({4: KID})
    yield "no key id", "header", header({1: -7})
    yield "a critical header", "header", header({1: -7, 2: [4], 4: KID})
    yield "a content type", "header", header({1: -7, 3: "application/cwt", 4: KID})
    yield "a certificate in the header", "header", header({1: -7, 4: KID, 33: b"certificate"})
    yield "a header that is an array", "header", header([1, -7, 4, KID])  # type: ignore[arg-type]
    for name, number in {
        "none": 0,
        "HMAC": 5,
        "EdDSA": -8,
        "ESP256": -9,
        "Ed25519": -19,
        "PS256": -37,
        "ES256K": -47,
        "RS256": -257,
        "ES256 as text": "ES256",
        "true": True,
        "null": None,
        "all of them": [-7, -35, -36],
    }.items():
        yield f"algorithm {name}", "algorithm", header({1: number, 4: KID})
    yield "a key id one byte short", "key-id", header({1: -7, 4: KID[:-1]})
    yield "a key id one byte long", "key-id", header({1: -7, 4: KID + b"\0"})
    yield "a key id as text", "key-id", header({1: -7, 4: KID.hex()})
    yield "no key id in its place", "key-id", header({1: -7, 4: None})
    yield "a header out of order", "encoding", signed(PAYLOAD, raw_map([KEY_ID, ALG]))
    yield "an algorithm twice", "encoding", signed(PAYLOAD, raw_map([ALG, ALG, KEY_ID]))
    yield "an algorithm in a longer form", "encoding", signed(PAYLOAD, raw_map([(b"\x18\x01", ALG[1]), KEY_ID]))
    yield "a header of indefinite length", "encoding", signed(PAYLOAD, raw_map([ALG, KEY_ID], b"\xbf") + b"\xff")
    yield "a byte behind the header", "encoding", signed(PAYLOAD, PROTECTED + b"\0")


def claims() -> Iterator[tuple[str, str, bytes]]:
    for label, name in CLAIMS.items():
        rest = {k: v for k, v in BODY.items() if k != label}
        yield f"no {name}", "claim-missing", signed(cbor.encode(rest))
        yield f"{name} null", "claim-value", claim(label, None)
        yield f"{name} true", "claim-value", claim(label, True)
        wrong: Any = 7 if isinstance(BODY[label], str | bytes | dict) else str(BODY[label])
        yield f"{name} of another type", "claim-value", claim(label, wrong)
    for extra in (9, 38, 0, -65542, "admin", "exp"):
        yield f"one claim more: {extra}", "claim-unknown", signed(cbor.encode({**BODY, extra: 1}))
    yield (
        "exp spelt out instead",
        "claim-missing",
        signed(cbor.encode({("exp" if k == EXP else k): v for k, v in BODY.items()})),
    )
    yield "a claim twice", "encoding", signed(raw_map([ENTRIES[0], *ENTRIES]))
    yield "exp twice", "encoding", signed(raw_map([*ENTRIES[:4], (ENTRIES[3][0], cbor.encode(2**33)), *ENTRIES[4:]]))
    yield "claims out of order", "encoding", signed(raw_map(ENTRIES[::-1]))
    yield "claims of indefinite length", "encoding", signed(raw_map(ENTRIES, b"\xbf") + b"\xff")
    yield (
        "a longer integer",
        "encoding",
        signed(raw_map([*ENTRIES[:3], (ENTRIES[3][0], b"\x1b\0\0\0\0" + ENTRIES[3][1][1:]), *ENTRIES[4:]])),
    )
    yield (
        "a floating time",
        "encoding",
        signed(raw_map([*ENTRIES[:3], (ENTRIES[3][0], b"\xfb\x41\xda\0\0\0\0\0\0"), *ENTRIES[4:]])),
    )
    yield (
        "a tagged time",
        "encoding",
        signed(raw_map([*ENTRIES[:3], (ENTRIES[3][0], b"\xc1" + ENTRIES[3][1]), *ENTRIES[4:]])),
    )
    yield "a byte behind the claims", "encoding", signed(PAYLOAD + b"\0")
    yield "claims nested too deep", "encoding", claim(CNF, {1: {1: 1, -1: 6, -2: [[b""]]}})
    yield from values()


def values() -> Iterator[tuple[str, str, bytes]]:
    realm, topic, key = world.REALM.hex(), world.TOPIC.hex(), frame_key("alice")
    for why, label, value in (
        ("iss empty", ISS, ""),
        ("iss a path", ISS, "../center"),
        ("iss with a line end", ISS, "center\n"),
        ("sub empty", SUB, ""),
        ("sub too long", SUB, "a" * 65),
        ("sub a lookalike", SUB, "аlice"),
        ("aud in capitals", AUD, f"sealcast:{realm.upper()}/topic/{topic}"),
        ("aud a name", AUD, f"sealcast:{realm}/topic/scores"),
        ("aud two", AUD, [BODY[AUD], BODY[AUD]]),
        ("aud of another scheme", AUD, f"https:{realm}/topic/{topic}"),
        ("aud with more behind", AUD, BODY[AUD] + "/"),
        ("aud without a topic", AUD, f"sealcast:{realm}"),
        ("exp at nbf", EXP, BODY[NBF]),
        ("exp negative", EXP, -1),
        ("exp after all time", EXP, 2**62),
        ("nbf after exp", NBF, BODY[EXP] + 1),
        ("nbf negative", NBF, -1),
        ("iat at exp", IAT, BODY[EXP]),
        ("iat negative", IAT, -1),
        ("cti short", CTI, bytes(15)),
        ("cti long", CTI, bytes(17)),
        ("cnf empty", CNF, {}),
        ("cnf a key id", CNF, {3: KID}),
        ("cnf with more", CNF, {1: {1: 1, -1: 6, -2: key}, 3: KID}),
        ("cnf a P-256 key", CNF, {1: {1: 2, -1: 1, -2: key, -3: key}}),
        ("cnf of kty EC2", CNF, {1: {1: 2, -1: 6, -2: key}}),
        ("cnf an X25519 key", CNF, {1: {1: 1, -1: 4, -2: key}}),
        ("cnf with an algorithm", CNF, {1: {1: 1, 3: -8, -1: 6, -2: key}}),
        ("cnf with a private key", CNF, {1: {1: 1, -1: 6, -2: key, -4: bytes(32)}}),
        ("cnf of kty true", CNF, {1: {1: True, -1: 6, -2: key}}),
        ("cnf short", CNF, {1: {1: 1, -1: 6, -2: key[:-1]}}),
        ("certificate short", CERTIFICATE, bytes(31)),
        ("certificate long", CERTIFICATE, bytes(33)),
        ("serial empty", SERIAL, b""),
        ("serial with a leading zero", SERIAL, b"\0\1"),
        ("serial too long", SERIAL, b"\1" * 17),
        ("template empty", TEMPLATE, ""),
        ("template not in its normal spelling", TEMPLATE, "Sports=NBA,Team=*"),
        ("template with an idle tag", TEMPLATE, "Sports=NBA, Sports=NFL"),
        ("template unfinished", TEMPLATE, "Sports="),
        ("template too long", TEMPLATE, "a=" + "x" * 1023),
        ("rights none", RIGHTS, 0),
        ("rights unknown", RIGHTS, 4),
        ("rights all bits", RIGHTS, 255),
        ("epoch negative", EPOCH, -1),
        ("epoch beyond all", EPOCH, 2**32),
    ):
        yield why, "claim-value", claim(label, value)


def gate() -> Iterator[Case]:
    """Well-formed tokens that do not count here, now, for this."""

    def case(why: str, reason: str, token: bytes = GOOD, **context: Any) -> Case:
        return {"why": why, "reason": reason, "token": token, **context}

    yield from audiences(case)
    yield from centers(case)
    yield from signatures(case)
    hour = 3600 * SECOND
    yield case("a moment too early", "not-yet-valid", at_us=NOW - hour - 300 * SECOND - 1)
    yield case("years too early", "not-yet-valid", mint(not_before=NOW // SECOND + 900, expires=NOW // SECOND + 1000))
    yield case("a moment too late", "expired", at_us=NOW + hour + 300 * SECOND)
    yield case("a day too late", "expired", at_us=NOW + DAY)
    yield case("too late where clocks agree", "expired", at_us=NOW + hour, topic={"parameters": {"max_skew_s": 0}})
    yield case(
        "too early where clocks agree", "not-yet-valid", at_us=NOW - hour - 1, topic={"parameters": {"max_skew_s": 0}}
    )
    yield case("valid for too long", "lifetime", mint(expires=NOW // SECOND + 86_400))
    yield case("valid for a second too long", "lifetime", topic={"parameters": {"token_lifetime_s": 7199}})
    yield case("a template for other topics", "template", mint(template=Template.parse("market.*; Sports=NBA")))
    yield case("a template for a longer name", "template", mint(template=Template.parse("scores.*")))
    yield case("a template for a shorter name", "template", mint(template=Template.parse("score")))
    yield case("a template in other letters", "template", mint(template=Template.parse("Scores")))
    yield case("a tag of no attribute", "template-schema", mint(template=Template.parse("League=NBA")))
    yield case("a tag of another type", "template-schema", mint(template=Template.parse("minute=late")))
    yield case("a tag that is no decimal", "template-schema", mint(template=Template.parse("price=NaN")))
    yield case("may publish, asks to subscribe", "right", need="subscribe")
    yield case("may subscribe, asks to publish", "right", mint(rights=frozenset({Right.SUBSCRIBE})))
    yield case("another's key", "holder", holder_key=frame_key("bob"))
    yield case("a stolen token under the thief's name", "holder", holder_key=frame_key("bob"), holder="bob")
    yield case("no key", "holder", holder_key=b"")
    yield case("the key with a byte more", "holder", holder_key=frame_key("alice") + b"\0")
    yield case("another's name", "subject", holder="bob")
    yield case("its owner was revoked", "revoked", revoked=[str(world.ALICE.serial)])
    yield case("the epoch is over", "epoch-ended", mint(epoch=2))
    yield case("the epoch is long over", "epoch-ended", mint(epoch=1), topic={"epoch_starts": [0, NOW - DAY, NOW]})
    yield case(
        "the grace is over", "epoch-ended", mint(epoch=2), topic={"epoch_starts": [0, 10, NOW - 300 * SECOND - 1]}
    )
    yield case("epoch nought", "epoch-ended", mint(epoch=0))
    yield case("an epoch that has not begun", "epoch-ahead", mint(epoch=4))


def audiences(case: Any) -> Iterator[Case]:
    yield case("for another realm", "realm", mint(realm=world.OTHER_REALM))
    yield case("for another topic", "audience", mint(topic=bytes(16)))
    yield case("shown to another topic", "audience", topic={"id": world.seeded("other")[:16], "name": "orders"})
    yield case("ES384 where the topic has ES256", "hash", mint(hash="sha-384"))
    yield case("ES512 where the topic has ES256", "hash", mint(hash="sha-512"))
    yield case("ES256 where the topic has ES384", "hash", topic={"parameters": {"token_hash": "sha-384"}})
    yield case("ES256 where the topic has ES512", "hash", topic={"parameters": {"token_hash": "sha-512"}})
    yield case("signed with SHA-256, says ES384", "hash", header({1: -35, 4: KID}))


def centers(case: Any) -> Iterator[Case]:
    yield case("a key id nobody has", "center-unknown", header({1: -7, 4: bytes(32)}))
    yield case("its owner as its own center", "center-unknown", header({1: -7, 4: world.ALICE.fingerprint}))
    yield case("the root as a center", "center-unknown", header({1: -7, 4: world.TRUST.root.fingerprint}))
    yield case("a center that certified itself", "center-untrusted", mint("stranger"), topic={"center": "stranger"})
    yield case("a center of another realm", "center-untrusted", mint("foreigner"), topic={"center": "foreigner"})
    yield case("its center was revoked", "center-revoked", revoked=[str(PARSED["center"].serial)])
    authority = world.TRUST.intermediates[0]
    yield case("its center's authority was revoked", "center-revoked", revoked=[str(authority.serial)])
    yield case("an entity as a center", "center-role", mint("no-center"), topic={"center": "no-center"})
    yield case(
        "a center whose time has not come", "center-not-yet-valid", mint("new-center"), topic={"center": "new-center"}
    )
    yield case("a center whose time is over", "center-expired", mint("old-center"), topic={"center": "old-center"})
    late, after = mint("late-center", not_before=NOW // SECOND + 86_400, expires=NOW // SECOND + 2 * 86_400), NOW + DAY
    yield case(
        "an authority whose time is over", "center-expired", late, topic={"center": "late-center"}, at_us=after + 1
    )
    yield case("says another center made it", "issuer", mint(issuer="other-center"))
    yield case("signed by another center in its name", "issuer", mint("other-center", issuer="center"))
    yield case("another center's", "center-other", mint("other-center"))
    yield case("of the center that the topic left", "center-other", topic={"center": "other-center"})
    yield case("a topic without a center", "center-other", topic={"center": ""})


def signatures(case: Any) -> Iterator[Case]:
    yield case("signed by its owner", "signature", signed(PAYLOAD, key=identity("alice")))
    yield case("signed by another center", "signature", signed(PAYLOAD, key=identity("other-center")))
    yield case("signed by the root", "signature", signed(PAYLOAD, key=identity(world.ROOT_NAME)))
    yield case("signed as a plain CWT", "signature", signed(PAYLOAD, aad=b""))
    yield case("signed as a frame", "signature", signed(PAYLOAD, aad=b"sealcast/1 frame"))
    yield case("zeros", "signature", wire.assemble(PROTECTED, PAYLOAD, bytes(64)))
    yield case("ones", "signature", wire.assemble(PROTECTED, PAYLOAD, b"\xff" * 64))
    yield case("r and s exchanged", "signature", wire.assemble(PROTECTED, PAYLOAD, SIGNATURE[32:] + SIGNATURE[:32]))
    more = cbor.encode({**BODY, RIGHTS: 3})
    yield case("rights added after signing", "signature", wire.assemble(PROTECTED, more, SIGNATURE))
    longer = cbor.encode({**BODY, EXP: BODY[EXP] + 60})
    yield case("a minute added after signing", "signature", wire.assemble(PROTECTED, longer, SIGNATURE))
    wider = cbor.encode({**BODY, TEMPLATE: "*"})
    yield case("a wider template after signing", "signature", wire.assemble(PROTECTED, wider, SIGNATURE))
    mine = cbor.encode({**BODY, CNF: {1: {1: 1, -1: 6, -2: frame_key("bob")}}})
    yield case(
        "another holder after signing",
        "signature",
        wire.assemble(PROTECTED, mine, SIGNATURE),
        holder_key=frame_key("bob"),
    )
    named = cbor.encode({**BODY, SUB: "bob"})
    yield case("another owner after signing", "signature", wire.assemble(PROTECTED, named, SIGNATURE), holder="bob")


def refused() -> list[Case]:
    bytes_only = [*seen_without_a_key(), *headers(), *claims()]
    return [*({"why": w, "reason": r, "token": t} for w, r, t in bytes_only), *gate()]


# --- bit flips ------------------------------------------------------------------------------------


def regions() -> list[tuple[str, int, int, tuple[str, ...]]]:
    """(what, start, end, what a flipped bit in it may be refused for) over every byte of the good token."""
    found = []
    for what, part, reasons in (
        ("kid", KID, ("center-unknown",)),
        ("signature", SIGNATURE, ("signature",)),
        ("iss", BODY[ISS].encode(), ("issuer", "claim-value", "encoding")),
        ("sub", BODY[SUB].encode(), ("signature", "claim-value", "encoding")),
        ("realm", world.REALM.hex().encode(), ("realm", "claim-value", "encoding")),
        ("topic", world.TOPIC.hex().encode(), ("audience", "claim-value", "encoding")),
        ("holder key", frame_key("alice"), ("signature",)),
        ("cti", BODY[CTI], ("signature",)),
        ("certificate", BODY[CERTIFICATE], ("signature",)),
        ("serial", BODY[SERIAL], ("signature", "claim-value")),
        ("template", BODY[TEMPLATE].encode(), ("signature", "claim-value", "template", "template-schema", "encoding")),
    ):
        start = GOOD.index(part)
        assert GOOD.count(part) == 1
        found.append((what, start, start + len(part), reasons))
    found.sort(key=lambda region: region[1])
    gaps, at = [], 0
    structure = ("encoding", "form", "header", "algorithm", "hash", "key-id", "claim-missing", "claim-unknown")
    numbers = ("claim-value", "signature", "absent", "size")
    for _, start, end, _ in [*found, ("", len(GOOD), len(GOOD), ())]:
        if at < start:
            gaps.append((f"structure at {at}", at, start, (*structure, *numbers)))
        at = end
    return sorted([*found, *gaps], key=lambda region: region[1])


def flips() -> Iterator[tuple[int, int]]:
    """One bit of every byte, each bit in its turn."""
    return ((at, 1 << at % 8) for at in range(len(GOOD)))


def flipped(at: int, mask: int) -> bytes:
    return GOOD[:at] + bytes([GOOD[at] ^ mask]) + GOOD[at + 1 :]


def document() -> Case:
    from tests.trust.token_judge import judged

    found: dict[str, list[str]] = {}
    for at, mask in flips():
        found.setdefault(judged({"token": flipped(at, mask)}) or "taken", []).append(f"{at}:{mask}")
    return {
        "about": "tokens, to be judged with these certificates in their contexts",
        "root": world.ROOT,
        "authorities": [world.INTERMEDIATE, world.LATE],
        "realm": world.REALM,
        "centers": world.CENTERS,
        "context": CONTEXT,
        "claims": {CLAIMS[label]: value if label != CNF else value[1][-2] for label, value in BODY.items()},
        "vectors": [*good(), *refused()],
        "flips": {reason: " ".join(found[reason]) for reason in sorted(found)},
    }


def text() -> str:
    return json.dumps(_plain(document()), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
