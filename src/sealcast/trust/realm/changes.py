"""Everything that can happen to a realm, as values: what the registry stores and `realm.Fold` applies.

A change says what was decided, never how: it carries public bytes only, so that the registry can be copied to
anyone who must know who may do what. Rules have no clock: where time matters, the change says when.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final

from sealcast.model.dataclass import dataclass
from sealcast.model.protection import DEFAULT_PROTECTION, Protection
from sealcast.model.schema import Schema
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.parameters import KeyParameters

#: The template that admits every topic and every event: written out, for nothing empty means everything.
EVERYTHING: Final = "*"
DEFAULT_PARAMETERS: Final = KeyParameters()
DEFAULT_GROUP_KEYS: Final = "mosaic"


class Right(StrEnum):
    """What one may do on a topic."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


class Access(StrEnum):
    """Whom a topic lets in before anyone grants anything."""

    #: Every enrolled entity may publish and subscribe, except where a right was taken away.
    MEMBERS = "members"
    #: Nobody may do anything, except where a right was granted.
    GRANTED = "granted"


# --- the authority and the entities -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundRealm:
    """Whom the realm believes: its first change. From here on nobody is enrolled without a certificate."""

    kind: ClassVar = "found-realm"
    id: bytes
    #: Certificates: the root's, and those of the authorities under it.
    root: bytes
    authorities: tuple[bytes, ...]
    #: Whose key signs for the administrator, by the root's word (`certificates.appointment`).
    administrator: bytes = b""


@dataclass(frozen=True, slots=True)
class AppointAdministrator:
    """From this version on another key signs for the administrator, by the root's word. Signed by that key."""

    kind: ClassVar = "appoint-administrator"
    appointment: bytes


@dataclass(frozen=True, slots=True)
class AddAuthority:
    """The next authority under the root."""

    kind: ClassVar = "add-authority"
    certificate: bytes


@dataclass(frozen=True, slots=True)
class EnrolEntity:
    """A name gets its public keys. Names are never given twice, also not after a revocation."""

    kind: ClassVar = "enrol-entity"
    name: str
    verify_key: bytes
    kem_public: bytes
    roles: tuple[Role, ...] = (Role.ENTITY,)
    #: What the authority says of all this, signed; its serial number, and when it ends.
    certificate: bytes = b""
    serial: int = 0
    expires_us: int = 0


@dataclass(frozen=True, slots=True)
class RenewCertificate:
    """A later certificate for the same name, the same keys and the same roles."""

    kind: ClassVar = "renew-certificate"
    name: str
    certificate: bytes
    serial: int
    expires_us: int


@dataclass(frozen=True, slots=True)
class RevokeCertificates:
    """The authority's next signed revocation list (`lists`)."""

    kind: ClassVar = "revoke-certificates"
    delta: bytes


@dataclass(frozen=True, slots=True)
class RevokeEntity:
    """From this version on the entity may do nothing, on any topic, for good."""

    kind: ClassVar = "revoke-entity"
    name: str


# --- topics and their keys ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopic:
    kind: ClassVar = "create-topic"
    name: str
    id: bytes
    schema: Schema
    partitions: int = 1
    protection: Protection = DEFAULT_PROTECTION
    access: Access = Access.MEMBERS
    #: The one key center that manages the topic.
    center: str = ""
    parameters: KeyParameters = DEFAULT_PARAMETERS
    #: Who registered it and decides about it, beside the administrator.
    owner: str = ""
    #: When its first epoch starts.
    at_us: int = 0
    #: The algorithm by which its groups of subscribers get their keys.
    group_keys: str = DEFAULT_GROUP_KEYS
    #: Its keys are of a chain (`keys.centers`); those of earlier releases were not.
    chained: bool = True


@dataclass(frozen=True, slots=True)
class AlterTopic:
    """Whom a topic lets in from now on, of those about whom nothing was decided by name, how long it keeps frames,
    pieces and keys, and the next version of its schema."""

    kind: ClassVar = "alter-topic"
    topic: str
    access: Access
    #: How long its frames are kept from now on; as before, without one.
    frames_kept_s: int | None = None
    #: What brokers do with its keys of past epochs from now on; as before, without one.
    past_keys: str | None = None
    #: How long its sealed pieces are kept from now on, and how many bytes of them; as before, without one.
    pieces_kept_s: int | None = None
    pieces_kept_bytes: int | None = None
    #: The next version of its schema; as before, without one.
    schema: Schema | None = None
    #: How many bytes of its frames are kept from now on; as before, without one.
    frames_kept_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """From this version on there is no such topic: nobody publishes on it, reads it or gets keys of it. Its name is not
    given again."""

    kind: ClassVar = "delete-topic"
    topic: str


@dataclass(frozen=True, slots=True)
class RotateTopic:
    """A new epoch: new keys from now on; what was sealed in earlier epochs stays readable for who had their keys."""

    kind: ClassVar = "rotate-topic"
    topic: str
    epoch: int
    at_us: int
    #: The key center that makes this epoch's keys and all after it; the one that made the last one's, if none is named.
    center: str = ""
    #: This epoch's keys, and those after it, are of a chain.
    chained: bool = True


@dataclass(frozen=True, slots=True)
class ForgetEpochs:
    """Nobody needs the keys of epochs before one any more: what was sealed in them was removed or sealed again. No
    frame of theirs is admitted from now on, and centers and brokers destroy these keys."""

    kind: ClassVar = "forget-epochs"
    topic: str
    #: The first epoch whose keys are kept.
    before: int


@dataclass(frozen=True, slots=True)
class PublishTopicKey:
    """A topic's key in one epoch, sealed (HPKE) by its center to one broker that serves it."""

    kind: ClassVar = "publish-topic-key"
    topic: str
    epoch: int
    broker: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class AnnounceReceivingKey:
    """The public half of a key by which a broker is handed a topic's keys from now on, until its next. The private half
    is forgotten when nobody needs what came by it (`keys.receiving`)."""

    kind: ClassVar = "announce-receiving-key"
    topic: str
    broker: str
    #: Each is one more than the one before.
    number: int
    public: bytes


@dataclass(frozen=True, slots=True)
class PublishPairKey:
    """The key that broker and entity share for a topic and epoch, sealed (HPKE) so that only that entity opens it."""

    kind: ClassVar = "publish-pair-key"
    topic: str
    epoch: int
    entity: str
    sealed: bytes


# --- rights -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Grant:
    """Gives rights, each for a time and for what a template admits; in place of the term that right had before."""

    kind: ClassVar = "grant"
    topic: str
    entity: str
    rights: tuple[Right, ...]
    not_before_us: int = 0
    #: None: until it is taken away.
    until_us: int | None = None
    template: str = EVERYTHING


@dataclass(frozen=True, slots=True)
class Revoke:
    """Takes rights on one topic away; `RevokeEntity` ends an entity altogether."""

    kind: ClassVar = "revoke"
    topic: str
    entity: str
    rights: tuple[Right, ...]


# --- subscriptions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Credential:
    """The token that a subscription lives by, and what it says: read and verified once, when the change was stored."""

    token: bytes
    not_before_us: int
    #: Not included.
    expires_us: int
    template: str
    epoch: int
    #: Of the subscriber's certificate: revoked, it ends the token.
    serial: int
    #: The fingerprint of the center's certificate that signed it.
    center: bytes


@dataclass(frozen=True, slots=True)
class AddSubscription:
    kind: ClassVar = "add-subscription"
    id: str
    topic: str
    subscriber: str
    #: As brokers of the topic take filters. Where they read them, it is sealed to them (`keys.filter_texts`); releases
    #: before that stored its text.
    filter: str
    credential: Credential | None = None


@dataclass(frozen=True, slots=True)
class HandFilterKey:
    """A key that filters of a topic are sealed under, sealed (HPKE) to one broker that serves it."""

    kind: ClassVar = "hand-filter-key"
    topic: str
    #: Names the key: every broker that serves the topic is handed the same.
    id: bytes
    broker: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class RenewSubscription:
    """A later token for subscriptions of one subscriber on one topic."""

    kind: ClassVar = "renew-subscription"
    ids: tuple[str, ...]
    credential: Credential


@dataclass(frozen=True, slots=True)
class RemoveSubscription:
    kind: ClassVar = "remove-subscription"
    id: str


# --- several brokers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttachSubscriber:
    """From this version on the broker seals for the subscriber, beside the one that it moves away from."""

    kind: ClassVar = "attach-subscriber"
    topic: str
    subscriber: str
    broker: str
    #: How many records the broker's ledger had: what is there for the subscriber comes after them.
    first: int = 0


@dataclass(frozen=True, slots=True)
class SettleSubscriber:
    """The broker that a subscriber moved away from has sealed all that the new one has not: it is done with."""

    kind: ClassVar = "settle-subscriber"
    topic: str
    subscriber: str
    #: The record of the left broker's ledger from which on nothing is the subscriber's.
    until: int
    #: For each broker that it was at before, the first record whose events the new broker may deliver, too.
    overlaps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BeginIncarnation:
    """A run of a broker begins to seal a topic's events. The keys of what it seals depend on a random value, so that no
    run before it had them, whatever directory it goes on from."""

    kind: ClassVar = "begin-incarnation"
    topic: str
    broker: str
    incarnation: bytes


# --- the overlay of a layered topic -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlaceNode:
    """A broker joins the topic's overlay, or moves in it: below another one, or as a root."""

    kind: ClassVar = "place-node"
    topic: str
    broker: str
    under: str | None = None
    #: When it was decided: should a generation of the overlay end by it, it has its grace from then on.
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """A broker leaves the overlay. Those below it stand below its parent from now on, or become roots."""

    kind: ClassVar = "remove-node"
    topic: str
    broker: str
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class PlaceSubscriber:
    """A subscriber stands below a broker of the overlay, wherever it stood before; or nowhere any more."""

    kind: ClassVar = "place-subscriber"
    topic: str
    subscriber: str
    broker: str | None
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class AnnounceLayerKey:
    """The public half of a participant's agreement key for a topic and epoch, as it signed it (`layer_keys`)."""

    kind: ClassVar = "announce-layer-key"
    topic: str
    epoch: int
    entity: str
    announcement: bytes
    #: Whether it announces itself as a publisher: one more tree, which everyone prepares for.
    publishes: bool = False


# --- peers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnnouncePeer:
    """Where an entity's peer is reached from now on, as the entity signed it (`peer_addresses`)."""

    kind: ClassVar = "announce-peer"
    entity: str
    announcement: bytes
    #: As the announcement says: it grows, so that nobody puts an old address back.
    sequence: int
    #: As the announcement says: whether it offers itself as a rendezvous (`protections.attribute.peering`).
    serves: bool = False


# --- brokers elsewhere --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnnounceGateway:
    """A broker's logs, ledgers and pieces are on a machine of their own, behind this gateway, from now on."""

    kind: ClassVar = "announce-gateway"
    broker: str
    gateway: str
    host: str
    port: int


# --- carriers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddCarrier:
    """A server that keeps logs for the realm, and where it is reached; the last word on it counts."""

    kind: ClassVar = "add-carrier"
    name: str
    #: As `log.carriers` reads it. How one proves who one is to it is nobody's business here.
    address: str


@dataclass(frozen=True, slots=True)
class CarryTopic:
    """From this version on a broker's frames of a topic are on a carrier."""

    kind: ClassVar = "carry-topic"
    topic: str
    broker: str
    carrier: str
    #: What the topic is called there.
    name: str
    #: By partition: the carrier's position that our first record there has, and its number in our log.
    positions: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CarryJournal:
    """From this version on a broker's ledger of a topic, its notes and its sealed pieces are on a carrier."""

    kind: ClassVar = "carry-journal"
    topic: str
    broker: str
    carrier: str
    #: What their names there begin with.
    name: str


@dataclass(frozen=True, slots=True)
class LeaveCarrier:
    """From this version on nobody appends to what a carrier has of a broker's topic: it is on its way back to the
    broker's directory."""

    kind: ClassVar = "leave-carrier"
    topic: str
    broker: str


@dataclass(frozen=True, slots=True)
class ReturnTopic:
    """From this version on all that a broker has of a topic is in its directory."""

    kind: ClassVar = "return-topic"
    topic: str
    broker: str


Change = (
    FoundRealm
    | AppointAdministrator
    | AddAuthority
    | EnrolEntity
    | RenewCertificate
    | RevokeCertificates
    | RevokeEntity
    | CreateTopic
    | AlterTopic
    | DeleteTopic
    | RotateTopic
    | ForgetEpochs
    | AnnounceReceivingKey
    | PublishTopicKey
    | PublishPairKey
    | Grant
    | Revoke
    | HandFilterKey
    | AddSubscription
    | RenewSubscription
    | RemoveSubscription
    | AttachSubscriber
    | SettleSubscriber
    | BeginIncarnation
    | PlaceNode
    | RemoveNode
    | PlaceSubscriber
    | AnnounceLayerKey
    | AnnouncePeer
    | AnnounceGateway
    | AddCarrier
    | CarryTopic
    | CarryJournal
    | LeaveCarrier
    | ReturnTopic
)
