"""A realm on other machines, as its clients reach it: through one gateway. So is a broker on a machine of its own.

Who answers is proven before anything is sent: OpenSSL verifies the chain to the root that the home pins, and the name
of the host; the certificate must then be that of a gateway which the newest registry at hand has not revoked. What is
served is believed by the signatures of the realm's authors, brokers and publishers, never by the gateway's word.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sealcast.errors import CertificateRejected, Corrupt, Unavailable
from sealcast.log.control_topics import ServingPlane
from sealcast.log.cursor import Saved
from sealcast.log.journal import Journal, JournalPart
from sealcast.log.lane_log import LaneLog
from sealcast.log.suspended import SuspensionNote
from sealcast.primitives.sign import VerifyKey
from sealcast.transports.address import GatewayAddress
from sealcast.transports.control import RemotePlane, RemotePosts
from sealcast.transports.cursors import CursorReports
from sealcast.transports.forwarding import RemoteForwarded
from sealcast.transports.frames import RemoteLaneLog
from sealcast.transports.groups import RemoteGroup
from sealcast.transports.https import Connection, Ways, path_of
from sealcast.transports.journals import RemoteJournal
from sealcast.transports.problems import GatewayRefused, GatewayUnreachable, MirrorBehind, strange
from sealcast.transports.receipts import LaneName
from sealcast.trust import homes, tls
from sealcast.trust.certificates.certificate import Certificate, Role, Trust
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.heads import SignedHead
from sealcast.trust.layout import Layout, RealmMark
from sealcast.trust.realm.state import RealmState
from sealcast.trust.site import Member
from sealcast.trust.statements import signers
from sealcast.trust.storage.trouble import CommitLost, another_history

if TYPE_CHECKING:
    from sealcast.trust.storage.mirror import Mirror
    from sealcast.trust.storage.opening import AnyStore
    from sealcast.trust.storage.rows import ChangeRow

#: How long what the gateway says of the realm is gone by: where discovery nodes listen.
MARK_S: Final = 5.0
#: How long a gateway is asked for news while there is a copy to go by.
PATIENCE_S: Final = 1.0
PAGE_BYTES: Final = 4 << 20
#: A registry that a record was made under is there, or comes within this time.
WITHHELD_S: Final = 10.0


class Around(NamedTuple):
    """What a site needs of the handle that it is made by."""

    paths: Layout
    mark: RealmMark
    clock: Callable[[], int]
    #: The newest state that was verified here, without asking anybody.
    known: Callable[[], RealmState | None]
    #: As whom the handle asks: the one named, else the first of those whom it can ask as.
    member: Callable[[str | None], Member]


class GatewaySite:
    """The shared things of a realm, behind a gateway, for the members of one home."""

    def __init__(
        self,
        around: Around,
        address: GatewayAddress,
        name: str | None = None,
        *,
        gateway: str | None = None,
        registry: Callable[[], AnyStore] | None = None,
    ) -> None:
        """As one member; as any of the home's, where it makes no difference. With `gateway`, nobody else may answer;
        with `registry`, the realm's history comes from there, and this gateway has a broker's things alone."""
        self._around = around
        self._paths, self._mark, self._clock, self._known = around.paths, around.mark, around.clock, around.known
        self._address = address
        self._name, self._expected, self._registry = name, gateway, registry
        self._sites: dict[str, GatewaySite] = {}
        self._parent: GatewaySite | None = None
        self._lock = threading.Lock()
        self._connected: Connection | None = None
        self._mirror: Mirror | None = None
        self._said: tuple[float, dict[str, Any]] | None = None
        self._gateway: Certificate | None = None

    @property
    def shown(self) -> str:
        return str(self._address)

    @property
    def here(self) -> bool:
        return False

    def of(self, name: str) -> GatewaySite:
        top = self._parent or self
        with top._lock:
            if name not in top._sites:
                top._sites[name] = site = GatewaySite(
                    self._around, self._address, name, gateway=self._expected, registry=self._registry
                )
                site._parent = top
            return top._sites[name]

    # --- what is shared -----------------------------------------------------------------------------

    def registry(self) -> AnyStore:
        from sealcast.trust.storage.mirror import Mirror

        if self._registry is not None:
            return self._registry()
        top = self._parent or self
        if top._mirror is None:
            top._mirror = Mirror(self._paths.registry, _Upstream(top))
        return top._mirror

    def frames(self, state: RealmState, topic: str, broker: str, number: int) -> LaneLog:
        about = state.topic(topic)
        place = state.broker_number(broker) * about.partitions + number
        home = self._paths.topic(topic, broker).root / "lanes" / self._member.name
        lane = LaneName(self._mark.id, about.id, broker, place)
        return RemoteLaneLog(self.connection, topic, lane, home, self._gateway_key)

    def journal(self, topic: str, broker: str, part: JournalPart = "", patience_s: float | None = None) -> Journal:
        # What a broker of a tree hands on is pinned to a version of its own table.
        pinned = _nothing if part == "hops" else self._require
        return RemoteJournal(self.connection, topic, broker, part, pinned, patience_s)

    def forwarded(self, topic: str, broker: str, partition: int) -> RemoteForwarded:
        return RemoteForwarded(self.connection, topic, broker, partition)

    def posts(self, topic: str, broker: str) -> RemotePosts:
        return RemotePosts(self.connection, topic, broker)

    def control(self) -> ServingPlane:
        return RemotePlane(self.connection)

    def listens(self, node: str, topic: bytes) -> bool:
        self.of(node).connection.send("PUT", path_of("discovery", node), {"topic": topic})
        (self._parent or self)._said = None
        return True

    def mark(self) -> bytes:
        nodes = [
            {"name": name, "topic": topic.hex(), "certificate": certificate.hex()}
            for name, topic, certificate in self._realm_said()["nodes"]
        ]
        return json.dumps({"discovery": nodes}).encode()

    def suspended(self, topic: str, broker: str) -> dict[str, SuspensionNote]:
        match self.connection.get(path_of("topics", topic, "brokers", broker, "suspended")):
            case {"notes": dict(found)}:
                return {str(id): SuspensionNote(*map(int, note)) for id, note in found.items() if len(note) == 3}
            case _:
                raise strange()

    def told(self, state: RealmState, topic: str, broker: str, part: JournalPart = "") -> Callable[[Saved], None]:
        me, about = self._member, state.topic(topic)
        signer = me.identity().signer
        return CursorReports(self.connection, self._mark.id, about.id, topic, broker, part, me.name, signer)

    def group(self, topic: str, reader: str, name: str) -> RemoteGroup:
        return RemoteGroup(self.of(reader).connection, topic, name)

    # --- who asks, and who answers ------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        """This entity's."""
        with self._lock:
            if self._connected is None:
                self._connected = Connection(self._address, Ways(self._context, self._prove, self._version))
            return self._connected

    def close(self) -> None:
        for site in (self, *self._sites.values()):
            if site._connected is not None:
                site._connected.close()

    def _version(self) -> int:
        state = None if self._registry is None else self._known()
        return 0 if state is None else state.version

    @property
    def _member(self) -> Member:
        return self._around.member(self._name)

    def _context(self) -> ssl.SSLContext:
        """With the newest certificate of the member that is known here."""
        chain = self._chain()
        return tls.client_context(self._member.identity(), chain[:-1], chain[-1])

    def _chain(self) -> list[bytes]:
        """The member's certificate, and those that lead to the root, which is the last."""
        me, state = self._member, self._known()
        newest = None if state is None else state.entities.get(me.name)
        kept = None if self._mark.gateway is None else homes.read_chain(self._paths, me.name, me.role)
        if kept is not None and hashlib.sha256(kept[-1]).digest() != self._mark.root:
            raise Corrupt(
                f"{homes.chain_file(self._paths, me.role, me.name)} ends with another root than the one that was "
                "pinned",
                hint="one of the two was exchanged: restore both from one copy, or join again",
            )
        if state is None or state.founding is None or newest is None:
            return homes.read_chain(self._paths, me.name, me.role) if kept is None else kept
        if kept is None or newest.certificate != kept[0]:
            # Renewed since, or kept in the registry alone: what that has is verified.
            trust = Trust(state.founding.root, state.founding.authorities, self._mark.id)
            chain = [newest.certificate, trust.issuer_of(newest.certificate), state.founding.root]
            if kept is not None:
                homes.write_chain(self._paths, me.name, chain, me.role)
            kept = chain
        return kept

    def _prove(self, der: bytes) -> None:
        """GatewayRefused unless this is the certificate of the gateway that should answer, and counts."""
        state, chain = self._known(), self._chain()
        authorities = chain[1:-1] if state is None or state.founding is None else state.founding.authorities
        revoked = RevocationView() if state is None else state.revoked
        try:
            trust = Trust(chain[-1], authorities, self._mark.id)
            self._gateway = trust.verify(der, self._clock(), revoked, role=Role.GATEWAY, name=self._expected)
        except CertificateRejected as error:
            raise GatewayRefused(
                "certificate", f"{self._address} is no gateway of the realm: {error.message}"
            ) from None

    def _gateway_key(self) -> bytes:
        """What the gateway that answered signs receipts with."""
        if self._gateway is None:
            raise Unavailable(f"{self._address} has not answered yet")
        return self._gateway.keys.verify_key

    # --- inside -------------------------------------------------------------------------------------

    def _require(self, version: int, chain: bytes) -> None:
        """A broker signed something that it made under that version of the registry: it exists, and is this one."""
        if not self.registry().come_to(version, WITHHELD_S):
            raise Corrupt(
                f"a broker signed for version {version} of the registry, which {self.shown} does not show: newer ones "
                "are withheld",
                hint="ask whoever runs the gateway, and compare with another member: sealcast registry head",
            )
        if chain and self.registry().read(lambda rows: rows.chain_at(version)) != chain:
            what = f"its version {version} is not the one that a broker signed for: the history was forked"
            raise another_history(self.shown, what, "fork", None)

    def _realm_said(self) -> dict[str, Any]:
        top, now = self._parent or self, time.monotonic()
        if top._said is None or now - top._said[0] > MARK_S:
            found = self.connection.get("/v1/realm")
            match found:
                case {"id": bytes(id), "nodes": list(nodes), "head": str(head)} if all(map(_is_node, nodes)):
                    if id != self._mark.id:
                        raise Corrupt(f"{self._address} serves another realm", hint="is the address right?")
                    self._compare(SignedHead.parse(head))
                    top._said = now, found
                case _:
                    raise strange()
        return top._said[1]

    def _compare(self, said: SignedHead) -> None:
        """The gateway's own signed head, held to the copy: two histories under one key convict it."""
        ours = self.registry().read(lambda rows: rows.chain_at(said.head.version))
        if said.realm != self._mark.id or not said.is_by(VerifyKey(self._gateway_key())):
            raise Unavailable(f"{self._address} does not sign for the history that it serves")
        if ours is not None and ours != said.head.chain:
            what = f"its version {said.head.version} is not the one that this copy has: the history was forked"
            raise another_history(self.shown, what, "fork", None)


class _Upstream:
    """The registry as a gateway serves it."""

    def __init__(self, site: GatewaySite) -> None:
        self._site = site

    @property
    def shown(self) -> str:
        return self._site.shown

    def newer(self, version: int) -> bool:
        from sealcast.trust.storage.mirror import FRESH_S

        known = [s._connected for s in (self._site, *self._site._sites.values()) if s._connected is not None]
        heard = max((each.heard for each in known), default=float("-inf"))
        return time.monotonic() - heard > FRESH_S or any(each.version_named > version for each in known)

    def changes(self, after: int, wait_s: float = 0.0, *, patient: bool) -> tuple[Sequence[ChangeRow], int]:
        from sealcast.trust.storage.rows import ChangeRow

        query = {"after": after, "max_bytes": PAGE_BYTES}
        patience = None if patient or not after else PATIENCE_S
        match self._site.connection.get("/v1/registry/changes", query, wait_s=wait_s, patience_s=patience):
            case {"rows": list(rows), "newest": int(newest)} if all(map(_is_row, rows)):
                return [ChangeRow(*row) for row in rows], newest
            case _:
                raise strange()

    def transact(self, after: int, chain: bytes, rows: Sequence[ChangeRow]) -> bool:
        body = {"after": after, "chain": chain, "rows": [list(row) for row in rows]}
        try:
            self._signer(rows[-1].signed).connection.send("POST", "/v1/registry/transactions", body)
        except MirrorBehind:
            return False
        except GatewayUnreachable as error:
            raise CommitLost(error.message, hint=error.hint) from None
        return True

    def _signer(self, signed: str) -> GatewaySite:
        """A gateway takes a transaction from one of those who signed it."""
        return next((self._site.of(name) for name in sorted(signers(signed))), self._site)


def _nothing(version: int, chain: bytes, /) -> None:
    """Says nothing of the registry."""


def _is_row(row: object) -> bool:
    match row:
        case [int(), int(), str(), str(), bytes(), str()]:
            return True
        case _:
            return False


def _is_node(row: object) -> bool:
    match row:
        case [str(), bytes(), bytes()]:
            return True
        case _:
            return False
