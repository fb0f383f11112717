"""Who is here: the authority, everyone it certified, and which certificates count no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sealcast.errors import Misuse, Rejected
from sealcast.trust.certificates import appointment, lists
from sealcast.trust.certificates.revocation import RevocationView
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import (
    AddAuthority,
    AnnounceGateway,
    AnnouncePeer,
    AppointAdministrator,
    EnrolEntity,
    FoundRealm,
    RenewCertificate,
    RevokeCertificates,
    RevokeEntity,
)
from sealcast.trust.realm.rules.draft import Draft
from sealcast.trust.realm.rules.names import check_name
from sealcast.trust.realm.state import AnnouncedPeer, BrokerGateway, Entity

KEY_BYTES: Final = 32
#: X25519 alone, as earlier releases enrolled, and ML-KEM-768 with X25519.
RECEIVING_KEY_SIZES: Final = (32, 1216)
MAX_PEER_ANNOUNCEMENT_BYTES: Final = 704
MAX_HOST_CHARACTERS: Final = 253


def believe(draft: Draft, change: FoundRealm | AddAuthority) -> None:
    """Whether the certificates are what they should be was vetted when this was stored."""
    if isinstance(change, FoundRealm):
        if draft.version:
            raise Misuse("a realm is founded by its first change, and once")
        if not change.root or not change.authorities:
            raise Misuse("a realm is founded with a root and an authority under it")
        draft.founding = change
        return
    if draft.founding is None:
        raise Misuse("this realm has no root that an authority could stand under")
    if not change.certificate or change.certificate in draft.founding.authorities:
        raise Misuse("this authority is known already, or there is none")
    draft.founding = replace(draft.founding, authorities=(*draft.founding.authorities, change.certificate))


def appoint_administrator(draft: Draft, change: AppointAdministrator) -> None:
    """That the root signed it, whoever reads the registry verifies (`statements`)."""
    if draft.founding is None:
        raise Misuse("this realm has no root that could appoint an administrator")
    present, given = appointment.number_of(draft.founding.administrator), appointment.number_of(change.appointment)
    if len(change.appointment) != appointment.APPOINTMENT_BYTES or given <= present:
        raise Misuse(f"appointment {given} of an administrator does not follow appointment {present}")
    draft.founding = replace(draft.founding, administrator=change.appointment)


def enrol(draft: Draft, change: EnrolEntity) -> None:
    check_name("entity", change.name)
    known = draft.entities.read.get(change.name)
    if known is not None and known.revoked:
        raise Rejected(
            f"the name {change.name!r} belonged to a revoked entity",
            hint="names are never given twice: choose another",
        )
    if known is not None:
        raise Misuse(
            f"entity {change.name!r} is enrolled already",
            hint="choose another name: each is used once; `sealcast entity list` shows them",
        )
    if len(change.verify_key) != KEY_BYTES or len(change.kem_public) not in RECEIVING_KEY_SIZES:
        sizes = " or ".join(map(str, RECEIVING_KEY_SIZES))
        raise Rejected(f"entity {change.name!r}: its keys have {KEY_BYTES} bytes to sign, {sizes} to receive by")
    if not change.roles or Role.AUTHORITY in change.roles:
        raise Misuse(f"entity {change.name!r}: an entity has a role, and the authority is none of the realm's")
    _check_certified(draft, change.name, change.certificate)
    roles = frozenset(change.roles)
    made = Entity(change.name, change.verify_key, change.kem_public, None, roles, change.certificate)
    if change.certificate:
        made = replace(made, serials=(change.serial,), expires_us=change.expires_us)
    draft.entities.write()[change.name] = made


def renew_certificate(draft: Draft, change: RenewCertificate) -> None:
    who = draft.entity(change.name)
    if who.revoked:
        raise Rejected(
            f"entity {change.name!r} was revoked (at version {who.revoked_at_version}); it gets no certificate",
            hint="a revoked name stays revoked: enrol a new one",
        )
    _check_certified(draft, change.name, change.certificate)
    if change.certificate == who.certificate or change.certificate in who.former:
        raise Misuse(f"entity {change.name!r} has this certificate already")
    former = (*who.former, who.certificate) if who.certificate else who.former
    draft.entities.write()[change.name] = replace(
        who,
        certificate=change.certificate,
        former=former,
        serials=(*who.serials, change.serial),
        expires_us=change.expires_us,
    )


def _check_certified(draft: Draft, name: str, certificate: bytes) -> None:
    if draft.founding is not None and not certificate:
        raise Rejected(
            f"entity {name!r} has no certificate", hint="the realm's authority issues one: sealcast entity enrol"
        )


def revoke_certificates(draft: Draft, change: RevokeCertificates) -> None:
    """The next list; its signature was verified when this was stored."""
    given = lists.parse(change.delta)
    if given.whole or given.number != draft.last_list.number + 1 or given.link != draft.last_list.digest:
        raise Misuse(f"revocation list {given.number} does not follow list {draft.last_list.number}")
    draft.list_before = draft.last_list
    entries = draft.entries.write()
    entries.update((serial, entry) for serial, entry in given.entries.items() if serial not in entries)
    draft.lists.write()[given.number] = change.delta
    draft.last_list = RevocationView(given.number, given.digest, given.at_us)


def revoke_entity(draft: Draft, change: RevokeEntity) -> None:
    known = draft.entity(change.name)
    if known.revoked:
        raise Misuse(f"entity {change.name!r} was revoked before, at version {known.revoked_at_version}")
    draft.entities.write()[change.name] = replace(known, revoked_at_version=draft.version + 1)


def announce_peer(draft: Draft, change: AnnouncePeer) -> None:
    """What it says, and that it was signed, was verified when this was stored."""
    who = draft.entity(change.entity)
    if who.revoked:
        raise Rejected(f"entity {who.name!r} was revoked (at version {who.revoked_at_version}); it has no address")
    if not who.member:
        raise Misuse(f"{who.name!r} runs the realm; peers are entities")
    if not 0 < len(change.announcement) <= MAX_PEER_ANNOUNCEMENT_BYTES:
        raise Misuse(f"an announcement has 1 to {MAX_PEER_ANNOUNCEMENT_BYTES} bytes, not {len(change.announcement)}")
    before = draft.peers.read.get(who.name)
    if before is not None and change.sequence <= before.sequence:
        raise Misuse(
            f"{who.name!r} has announced an address since: {change.sequence} does not follow {before.sequence}"
        )
    draft.peers.write()[who.name] = AnnouncedPeer(change.announcement, change.sequence, change.serves)


def announce_gateway(draft: Draft, change: AnnounceGateway) -> None:
    """A broker that has served a topic has left things where it was. So it says that it is elsewhere before; what it
    says later is another way to the same machine."""
    broker = draft.holder(change.broker, Role.BROKER).name
    gateway = draft.holder(change.gateway, Role.GATEWAY).name
    if not 0 < len(change.host) <= MAX_HOST_CHARACTERS or not change.host.isascii() or not change.host.isprintable():
        raise Misuse("a gateway's host is a name or an address in ASCII")
    if not 0 < change.port < 65_536:
        raise Misuse(f"{change.port} is no port")
    if broker not in draft.gateways.read and any(_has_part(draft, topic, broker) for topic in draft.topics.read):
        raise Misuse(
            f"broker {broker!r} has served a topic where the realm is, and left its logs there",
            hint="invite a new broker to the other machine, and let that one serve the topic",
        )
    draft.gateways.write()[broker] = BrokerGateway(gateway, change.host, change.port)


def _has_part(draft: Draft, topic: str, broker: str) -> bool:
    """Whether a broker ever was handed the topic's keys, or stands in its overlay."""
    tables = draft.tables(topic)
    return any(holder == broker for _, holder in tables.topic_keys.read) or broker in tables.nodes.read
