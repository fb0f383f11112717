"""Every endpoint, on one page. The application, the OpenAPI document and the tests read this table and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sealcast.gateway import control, frames, groups, health, joining, mail, registry, reports, streams
from sealcast.gateway.access import HOPS, MAIL, REPLAYS
from sealcast.gateway.asked import Answer, ApiCall
from sealcast.gateway.limits import (
    LARGE_BODY,
    MAX_CHANGES,
    MAX_FRAMES,
    MAX_PAGE_BYTES,
    MAX_POSTS,
    MAX_WAIT_S,
    PAGE_BYTES,
    SMALL_BODY,
)
from sealcast.gateway.mail import LEDGER, RESEALS
from sealcast.gateway.shapes import BodyShape, Bytes, Flag, ListOf, Map, MapOf, Parameter, RowShape, Text, Whole
from sealcast.log import groups as kept_groups
from sealcast.log.group_statement import MAX_STATEMENT_BYTES, SHARES
from sealcast.trust.heads import CHAIN_BYTES
from sealcast.trust.invitations import MAX_ANSWER_BYTES, MAX_REQUEST_BYTES
from sealcast.wire.limits import MAX_ENVELOPE_BYTES, MAX_FRAME_BYTES, MAX_POST_BYTES

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

CBOR: Final = "application/cbor"
CBOR_SEQUENCE: Final = "application/cbor-seq"
OCTETS: Final = "application/octet-stream"
JSON: Final = "application/json"

#: What may stand in a path, by the name in braces.
SEGMENTS: Final[dict[str, str]] = {
    "topic": r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}",
    "broker": r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}",
    "part": f"({MAIL}|{HOPS}|{REPLAYS})",
    "which": f"({LEDGER}|{RESEALS})",
    "name": r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}",
    "id": r"[0-9a-f]{32}",
    "member": r"[0-9a-f]{16}",
}


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One method on one path."""

    method: str
    path: str
    answer: Callable[[Hub, ApiCall], Awaitable[Answer]]
    #: A word for it: in metrics, logs and the document.
    name: str
    about: str
    query: tuple[Parameter, ...] = ()
    body: BodyShape | None = None
    max_body: int = SMALL_BODY
    #: What a good answer is: a shape for CBOR, else bytes of this type; None for 204.
    gives: BodyShape | None = None
    media_type: str | None = CBOR
    #: Whether anybody may ask, also without a certificate.
    public: bool = False
    #: What asking costs, in requests of the usual kind.
    cost: int = 1
    #: What can go wrong beside what always can: 400, 401, 403, 404, 421, 429 and 503.
    refusals: tuple[int, ...] = ()

    @property
    def reads(self) -> bool:
        return self.method == "GET"


_N, _TIME = Whole(), Whole()
_RECORD: Final = RowShape(("offset", "time_us", "data"), (_N, _TIME, Bytes()))
_CHANGE: Final = RowShape(
    ("version", "at_us", "kind", "body", "chain", "signed"),
    (Whole(1), _TIME, Text(64), Text(8 << 20), Bytes(CHAIN_BYTES, CHAIN_BYTES), Text(8 << 20)),
)
_PAGE: Final = Map({"records": ListOf(_RECORD, most=1 << 20), "start": _N, "end": _N})
_OFFSETS: Final = Map({"offsets": ListOf(_N), "receipt": Bytes(64, 64)})
_CURSOR: Final = Map(
    {"cursor": ListOf(_N, 3, 3), "tag": Bytes(0, 64), "signature": Bytes(64, 64)},
)

_SHARE: Final = Whole(0, SHARES - 1)
_ACK: Final[dict[str, BodyShape]] = {
    "statement": Bytes(1, MAX_STATEMENT_BYTES), "signature": Bytes(64, 64),
    "events": Bytes(2, kept_groups.MAX_HAD_BYTES),
    "shares": ListOf(
        RowShape(("number", "fence", "had"), (_SHARE, _N, Bytes(2, kept_groups.MAX_HAD_BYTES))), 1, SHARES
    ),
}  # fmt: skip
_MEMBER: Final = Text(16, SEGMENTS["member"])
_OWNED: Final = ListOf(RowShape(("number", "fence"), (_SHARE, _N)), most=SHARES)
_TURN: Final = Map(
    {
        "mine": _OWNED,
        "new": ListOf(
            RowShape(("number", "fence", "statement", "signature", "had"), (_SHARE, _N, Bytes(), Bytes(), Bytes()))
        ),
        "give": ListOf(_SHARE, most=SHARES),
        "low": ListOf(RowShape(("broker", "first", "record", "piece", "rank"), (Text(64), _N, _N, _N, _N))),
        "members": _N,
    }
)
_GROUP: Final = "/v1/topics/{topic}/groups/{name}"

_FROM: Final = Parameter("from", Whole(), "The first offset that is wanted.", 0)
_MAX_BYTES: Final = Parameter(
    "max_bytes", Whole(1, MAX_PAGE_BYTES), "At most so many bytes of data; one record is always given.", PAGE_BYTES
)
_WAIT: Final = Parameter("wait", Whole(0, MAX_WAIT_S), "Seconds to wait for something when there is nothing yet.", 0)
_PARTITION: Final = Parameter("partition", Whole(0, 2**31), "A partition of the log at this broker.")
_AT: Final = "/v1/topics/{topic}/brokers/{broker}"
_JOURNAL: Final = f"{_AT}/{{part}}/{{which}}"

ENDPOINTS: Final[tuple[ApiRoute, ...]] = (
    ApiRoute(
        "GET", "/v1/realm", registry.realm, "realm",
        "The realm: its id, root, authorities, discovery nodes and newest version, with a head that the gateway signs."
        " Pin the SHA-256 of `root`: everything else is verified from it.",
        gives=Map({
            "v": Whole(1, 1), "id": Bytes(16, 16), "name": Text(), "root": Bytes(1), "authorities": ListOf(Bytes(1)),
            "nodes": ListOf(RowShape(("name", "topic", "certificate"), (Text(64), Bytes(16, 16), Bytes()))),
            "version": _N, "head": Text(), "gateway": Text(64),
        }),
        public=True,
    ),
    ApiRoute(
        "GET", "/v1/registry/changes", registry.changes, "registry-changes",
        "The registry's rows after a version, as they are stored. A page ends where a transaction ends.",
        query=(Parameter("after", Whole(), "The version that the caller has.", 0), _MAX_BYTES, _WAIT),
        gives=Map({"rows": ListOf(_CHANGE, most=1 << 20), "newest": _N}),
    ),
    ApiRoute(
        "POST", "/v1/registry/transactions", registry.transact, "registry-transact",
        "Adds one transaction that the caller signed, if the registry is still at the version that it was made from"
        " (409 otherwise). The same transaction sent again is answered as the first time.",
        body=Map({
            "after": _N, "chain": Bytes(CHAIN_BYTES, CHAIN_BYTES), "rows": ListOf(_CHANGE, 1, MAX_CHANGES),
        }),
        max_body=LARGE_BODY, gives=Map({"version": _N}), refusals=(409, 422, 507),
    ),
    ApiRoute(
        "POST", f"{_AT}/frames", frames.append, "frames-append",
        "Appends frames of the caller. The answer comes when they are durable. A frame sent twice is appended once.",
        body=Map({"partition": Whole(0, 2**31), "frames": ListOf(Bytes(1, MAX_FRAME_BYTES), 1, MAX_FRAMES)}),
        max_body=LARGE_BODY, gives=_OFFSETS, refusals=(422, 507),
    ),
    ApiRoute(
        "GET", f"{_AT}/frames", frames.look, "frames-look",
        "Which partitions of the log are this broker's own; with `partition`, where that one begins and ends, and how"
        " many of its frames wait for the broker.",
        query=(_PARTITION,), gives=MapOf(ListOf(_N)),
    ),
    ApiRoute(
        "GET", _JOURNAL, mail.records, "journal-read",
        "Records of a broker's ledger, or its notes on pieces that took the place of others, as it signed them.",
        query=(_FROM, _MAX_BYTES, _WAIT), gives=_PAGE,
    ),
    ApiRoute(
        "GET", f"{_JOURNAL}/at", mail.at, "journal-at", "The first record of a time or later.",
        query=(Parameter("time_us", _TIME, "Microseconds since 1970.", required=True),), gives=Map({"offset": _N}),
    ),
    ApiRoute(
        "GET", f"{_AT}/{{part}}/pieces/{{name}}", mail.piece, "piece",
        "A whole piece that concerns the caller. Verify it by the digest in the ledger.", media_type=OCTETS,
    ),
    ApiRoute(
        "GET", f"{_AT}/{{part}}/follow", streams.follow, "follow",
        'An endless sequence of CBOR items (RFC 8742): `["piece", name, bytes]` for each piece that concerns you,'
        ' before `["record", offset, time_us, data]` that names it; `["reseals", end]` when there are more such notes;'
        ' `["beat", end]` when nothing happened for a while.',
        query=(_FROM,), media_type=CBOR_SEQUENCE,
    ),
    ApiRoute(
        "POST", f"{_AT}/posts", reports.posts, "posts", "Appends filter posts of the caller (layered topics).",
        body=Map({"posts": ListOf(Bytes(1, MAX_POST_BYTES), 1, MAX_POSTS)}),
        max_body=LARGE_BODY, media_type=None, refusals=(422, 507),
    ),
    ApiRoute(
        "PUT", f"{_AT}/cursors/{{name}}", reports.cursor, "cursor",
        "Reports how far the caller has read, signed by it.",
        query=(Parameter("part", Text(8, f"({MAIL}|{HOPS})"), "Which ledger.", MAIL),),
        body=_CURSOR, media_type=None, refusals=(422, 507),
    ),
    ApiRoute(
        "PUT", _GROUP, groups.begin, "group-begin",
        "Makes a consumer group of the caller's, unless there is one. The statement says where it begins, signed.",
        body=Map(_ACK), max_body=LARGE_BODY, gives=Map({"made": Flag()}), refusals=(422, 507),
    ),
    ApiRoute(
        "POST", f"{_GROUP}/turns", groups.turn, "group-turn",
        "A member is there, and gives back the shares of `done`. Which shares are its own, where those begin that it"
        " did not know, which others wait for, and how far all of them are.",
        body=Map({"member": _MEMBER, "about": Text(128), "known": _OWNED, "done": ListOf(_SHARE, most=SHARES)}),
        gives=_TURN, refusals=(507,),
    ),
    ApiRoute(
        "POST", f"{_GROUP}/acks", groups.acknowledge, "group-ack",
        "Acknowledges what a member was handed of its shares: all of them or none. `lost` are those that went to other"
        " members, and then nothing was done.",
        body=Map({"member": _MEMBER, **_ACK}), max_body=LARGE_BODY, gives=Map({"lost": ListOf(_SHARE, most=SHARES)}),
        refusals=(422, 507),
    ),
    ApiRoute(
        "DELETE", f"{_GROUP}/members/{{member}}", groups.leave, "group-leave", "Frees a member's shares at once.",
        media_type=None, refusals=(507,),
    ),
    ApiRoute(
        "GET", f"{_AT}/suspended", mail.notes, "suspended",
        "Which of the caller's own subscriptions were suspended: pieces, first time, last time.",
        gives=Map({"notes": MapOf(ListOf(_N, 3, 3))}),
    ),
    ApiRoute(
        "PUT", "/v1/control/{id}", control.create, "control-create",
        "Makes a control topic under 128 random bits. Its maker alone reads it.",
        query=(Parameter("reply", Whole(0, 1), "1 for a topic that answers go to.", 0),), media_type=None,
        refusals=(507,),
    ),
    ApiRoute(
        "POST", "/v1/control/{id}", control.post, "control-post", "Queues a sealed envelope for whoever listens.",
        query=(Parameter("reply", Whole(0, 1), "1 for an answer: it goes to topics for answers only.", 0),),
        body=Map({"data": Bytes(1, MAX_ENVELOPE_BYTES)}), max_body=MAX_ENVELOPE_BYTES + 1024, gives=Map({"offset": _N}),
        refusals=(507,),
    ),
    ApiRoute(
        "GET", "/v1/control/{id}", control.read, "control-read", "What was posted, to the topic's maker.",
        query=(_FROM, _MAX_BYTES, _WAIT),
        gives=Map({
            "records": ListOf(RowShape(("offset", "time_us", "origin", "data"), (_N, _TIME, Text(64), Bytes()))),
            "end": _N,
        }),
    ),
    ApiRoute(
        "PUT", "/v1/discovery/{name}", control.listens, "discovery-listens",
        "Says where the calling discovery node listens: on a control topic that it made.",
        body=Map({"topic": Bytes(16, 16)}), media_type=None, refusals=(507,),
    ),
    ApiRoute("DELETE", "/v1/control/{id}", control.drop, "control-drop", "Ends a control topic.", media_type=None),
    ApiRoute(
        "GET", "/v1/brokers/{broker}/forwarded", reports.forwarded, "forwarded",
        "How far the frames of one broker have come to another one: the offset in the first one's log that is next;"
        " the one after the first `taken` of them; how many come from before `origin`. For brokers of the topic.",
        query=(
            Parameter("topic", Text(64, SEGMENTS["topic"]), "The topic.", required=True),
            Parameter("partition", Whole(0, 2**31), "A partition of another broker's block.", required=True),
            Parameter("taken", Whole(), "How many of the frames.", 0),
            Parameter("origin", Whole(), "An offset in the log that they come from.", 0),
        ),
        gives=Map({"next": _N, "through": _N, "index": _N}),
    ),
    ApiRoute(
        "POST", "/v1/brokers/{broker}/forwarded", reports.forward, "forward",
        "Hands the calling broker's frames on, by their offsets in its own log, each once.",
        body=Map({
            "topic": Text(64, SEGMENTS["topic"]), "partition": Whole(0, 2**31),
            "frames": ListOf(RowShape(("offset", "frame"), (_N, Bytes(1, MAX_FRAME_BYTES))), 1, MAX_FRAMES),
        }),
        max_body=LARGE_BODY, gives=Map({"next": _N}), refusals=(422, 507),
    ),
    ApiRoute(
        "POST", "/v1/join", joining.join, "join",
        "Carries a newcomer's request to whoever can enrol it, and the answer back, both tagged under the code of an"
        " invitation. The same request sent again is answered as the first time.",
        body=Map({"request": Bytes(1, MAX_REQUEST_BYTES)}), max_body=MAX_REQUEST_BYTES + 64,
        gives=Map({"answer": Bytes(1, MAX_ANSWER_BYTES)}), public=True, cost=joining.JOIN_COST,
    ),
    ApiRoute(
        "GET", "/healthz", health.healthz, "healthz", "Whether the process answers.", media_type=JSON, public=True
    ),
    ApiRoute(
        "GET", "/readyz", health.readyz, "readyz",
        "Whether it can serve: the registry is readable, its certificate counts, and it is not about to stop.",
        media_type=JSON, public=True,
    ),
    ApiRoute(
        "GET", "/openapi.json", health.openapi, "openapi", "This document.", media_type=JSON, public=True
    ),
)  # fmt: skip
