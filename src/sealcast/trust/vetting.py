"""What a new change must pass beyond the rules: checks too dear to repeat whenever the registry is read.

A template is parsed and typed against its topic's schema; certificates, revocation lists and tokens are verified, and
must say what the change says of them: once, before the change is stored. Whoever reads the registry afterwards may rely
on all of it. Of a filter that is sealed to brokers, the shape is checked here. Its text is checked by whoever seals it
(`vet_filter`), and by every broker that opens it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from sealcast.errors import FilterRejected, Rejected, SchemaRejected
from sealcast.model.protection import MAX_FILTER_EPOCHS, OWN_FILTER, Protection
from sealcast.model.schema import Schema, Type
from sealcast.primitives import hybrid
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates import lists
from sealcast.trust.certificates.certificate import Certificate
from sealcast.trust.keys import layer_announcements, peer_addresses
from sealcast.trust.realm.changes import (
    AddAuthority,
    AddSubscription,
    AnnounceLayerKey,
    AnnouncePeer,
    AnnounceReceivingKey,
    Change,
    CreateTopic,
    Credential,
    EnrolEntity,
    FoundRealm,
    Grant,
    RenewCertificate,
    RenewSubscription,
    RevokeCertificates,
    Right,
)
from sealcast.trust.realm.machine import Fold, Topic
from sealcast.trust.realm.templates import Template
from sealcast.trust.realm.topics import FIRST_EPOCH
from sealcast.trust.tokens import gates
from sealcast.wire.limits import MAX_ATTRIBUTE_POSITIONS, MAX_ATTRIBUTE_TREES, MAX_TREE_NAME_BYTES
from sealcast.wire.sealed_texts import SealedText


def vet(fold: Fold, change: Change, at_us: int) -> None:
    """Refuses with Rejected or one of its kinds. The rules were asked first: the names in the change exist."""
    match change:
        case CreateTopic():
            _vet_labels(change.protection, change.schema)
        case AddSubscription():
            about = fold.topic(change.topic)
            _vet_stored_filter(fold, about, change.filter)
            _vet_credential(fold, change.topic, change.subscriber, change.credential, at_us)
        case RenewSubscription():
            renewed = fold.subscription(change.ids[0])
            _vet_credential(fold, renewed.topic, renewed.subscriber, change.credential, at_us)
        case EnrolEntity():
            _vet_enrolment(fold, change, at_us)
        case RenewCertificate():
            _vet_renewal(fold, change, at_us)
        case Grant():
            _vet_grant(fold.topic(change.topic), change.template)
        case RevokeCertificates():
            _vet_list(fold, change)
        case AnnounceReceivingKey():
            if not hybrid.is_usable(change.public):
                raise Rejected(f"nothing can be sealed to the receiving key that {change.broker!r} announces")
        case AnnounceLayerKey():
            _vet_layer_key(fold, change, at_us)
        case AnnouncePeer():
            _vet_peer(fold, change, at_us)
        case FoundRealm() | AddAuthority():
            gates.trust_of(fold.founding)


def filter_epochs(topic: Topic) -> range:
    """The epochs in which filters of a topic can be registered: the present one, and a few before where brokers match
    filters with what they retain."""
    before = 0 if topic.protection.retention is None else MAX_FILTER_EPOCHS - 1
    return range(max(FIRST_EPOCH, topic.epoch - before), topic.epoch + 1)


def _vet_stored_filter(fold: Fold, topic: Topic, filter: str) -> None:
    """FilterRejected unless the registry may have it: where brokers read filters, sealed to them and nothing else. A
    realm without an authority has no keys to seal with."""
    if topic.protection.brokers_read and fold.founding is not None:
        SealedText.from_text(filter)
    else:
        vet_filter(topic, filter, filter_epochs(topic))


def vet_filter(topic: Topic, text: str, epochs: Container[int] | None = None) -> None:
    """FilterRejected, with position and suggestion, unless `text` is a filter that the topic's brokers can evaluate.

    Where filters are sealed, a sealed one of these epochs is, or of the current one (SealedRejected says why another is
    not), and nothing else: who sends a text by mistake learns it before anybody could read it there. Where filters are
    for the key center alone, the registry has the same words in place of each.
    """
    protection = topic.protection
    if protection.peers:
        if text != OWN_FILTER:
            raise FilterRejected(
                "inexpressible",
                f"filters of topic {topic.name!r} go to its key center alone, never into the registry",
                at=0,
                hint=f"subscribe as the entity itself: sealcast subscription add {topic.name} --as ENTITY --filter ...",
            )
        return
    if len(text) > protection.max_filter_characters:
        most = protection.max_filter_characters
        raise FilterRejected("limit", f"a filter of topic {topic.name!r} has at most {most} characters", at=most)
    # Filters and sealed ones load much, and every command loads this file.
    if not protection.filters_sealed:
        from sealcast.filters.check import fit
        from sealcast.filters.parse import parse
        from sealcast.filters.visible import refuse_unseen

        hidden = protection.hidden_of(topic.schema)
        refuse_unseen(fit(parse(text), topic.schema), hidden, payloads_seen=protection.payloads_seen)
        return
    from sealcast.wire.searching import SealedFilter, SealedReason, SealedRejected

    sealed = SealedFilter.from_text(text, protection.tag_bits_shown)
    if sealed.epoch not in ((topic.epoch,) if epochs is None else epochs):
        raise SealedRejected(
            SealedReason.EPOCH,
            f"the filter was sealed in epoch {sealed.epoch}, and topic {topic.name!r} is in epoch {topic.epoch}",
            hint="seal it again with the keys of this epoch: sealcast does so by itself",
        )


def _vet_labels(protection: Protection, schema: Schema) -> None:
    """Where keys are for labels: whether the labels of every event of the schema have a place on the wire."""
    if not protection.peers:
        return
    # Labels load Arrow, and every command loads this file.
    from sealcast.filters.labels import Labeller
    from sealcast.filters.labels.grid import joint_bits
    from sealcast.filters.labels.naming import ENDING_MARK

    longest = MAX_TREE_NAME_BYTES - len(ENDING_MARK)
    for name in schema.names:
        if len(name.encode()) > longest:
            raise SchemaRejected(f"attribute {name!r}: names have at most {longest} bytes on a topic that peers carry")
    strings = sum(attribute.type is Type.STRING for attribute in schema.attributes)
    if len(schema.names) + strings > MAX_ATTRIBUTE_TREES:
        raise SchemaRejected(
            f"a topic that peers carry has at most {MAX_ATTRIBUTE_TREES} attributes, and each string counts twice"
        )
    if protection.joins_numbers:
        bits = joint_bits(Labeller(schema).grids.values())
        if bits >= MAX_ATTRIBUTE_POSITIONS:
            raise SchemaRejected(
                f"the numbers of this schema take {bits} bits together, and {MAX_ATTRIBUTE_POSITIONS - 1} are allowed",
                hint="give them bounds or coarser steps, or keep them apart (without --joint)",
            )


def vet_template(topic: str, schema: Schema, text: str) -> Template:
    """The template, if it admits the topic and its tags fit the schema; a right that admits nothing is refused."""
    template = Template.parse(text)
    if not template.admits_topic(topic):
        raise Rejected(
            f"the template {text!r} admits topics {template.topics!r}, and this is {topic!r}",
            hint="leave the topic part out: the tags alone are for the topic that the right is on",
        )
    template.condition(schema)
    return template


def _vet_grant(topic: Topic, text: str) -> None:
    template = vet_template(topic.name, topic.schema, text)
    if topic.protection.peers:
        from sealcast.filters.labels import label_filter

        # Keys are for labels: what cannot be one set of them for each attribute cannot be enforced.
        if len(label_filter(template.condition(topic.schema), topic.schema).conjunctions) != 1:
            raise Rejected(f"the tags of {text!r} are no one set of labels for each attribute", hint="use fewer tags")
        return
    if not topic.protection.brokers_read and not template.every_event:
        raise Rejected(
            f"topic {topic.name!r} is {topic.protection.name}: its brokers cannot read, so nobody could hold events "
            f"against the tags of {text!r}",
            hint="grant the right for all events, or make another topic for those with these tags",
        )


def remarks(schema: Schema, text: str) -> list[str]:
    """What the author of a filter should know: that it can never be true, say. FilterRejected when it is none."""
    from sealcast.filters.check import check
    from sealcast.filters.parse import parse

    return [warned.message for warned in check(parse(text), schema).warnings]


# --- certificates -------------------------------------------------------------------------------------


def _vet_enrolment(fold: Fold, change: EnrolEntity, at_us: int) -> None:
    if fold.founding is None:
        VerifyKey(change.verify_key)
        return
    found = _verified(fold, change.name, change.certificate, change.serial, change.expires_us, at_us)
    if (found.verify_key, found.kem_public, found.roles) != (
        change.verify_key,
        change.kem_public,
        frozenset(change.roles),
    ):
        raise Rejected(f"entity {change.name!r}: its certificate is about other keys or other roles")


def _vet_renewal(fold: Fold, change: RenewCertificate, at_us: int) -> None:
    found = _verified(fold, change.name, change.certificate, change.serial, change.expires_us, at_us)
    # The rule has made the new one current; the one before is the last of the former ones.
    before = certificates.parse(fold.entity(change.name).former[-1])
    if (found.keys, found.roles) != (before.keys, before.roles):
        raise Rejected(
            f"entity {change.name!r}: a renewed certificate is about the same keys and roles",
            hint="for new keys, enrol a new name",
        )
    if found.not_after_us < before.not_after_us:
        raise Rejected(f"entity {change.name!r}: this certificate ends before the one it has")


def _verified(fold: Fold, name: str, der: bytes, serial: int, expires_us: int, at_us: int) -> Certificate:
    found = gates.trust_of(fold.founding).verify(der, at_us, fold.revoked, name=name)
    if (found.serial, found.not_after_us) != (serial, expires_us):
        raise Rejected(f"entity {name!r}: its certificate has another serial number or another end")
    return found


def _vet_list(fold: Fold, change: RevokeCertificates) -> None:
    given = lists.parse(change.delta)
    entries = {serial: entry for serial, entry in fold.revoked.entries.items() if serial not in given.entries}
    replace(fold.list_before, entries=entries).follow([given], gates.trust_of(fold.founding))


# --- agreement keys -----------------------------------------------------------------------------------


def _vet_layer_key(fold: Fold, change: AnnounceLayerKey, at_us: int) -> None:
    """LayerKeyRejected, with its reason, unless the entity signed this key for this topic and epoch, and counts now."""
    realm = b"" if fold.founding is None else fold.founding.id
    about = layer_announcements.About(realm, fold.topic(change.topic).id, change.epoch, change.entity)
    trust = None if fold.founding is None else gates.trust_of(fold.founding)
    layer_announcements.judge(change.announcement, about, fold.entity(change.entity), trust, fold.revoked, at_us)


# --- peers --------------------------------------------------------------------------------------------


def _vet_peer(fold: Fold, change: AnnouncePeer, at_us: int) -> None:
    """PeerAddressRejected, with its reason, unless the entity signed this address and counts now."""
    if fold.founding is None:
        raise Rejected("peers prove who they are with certificates, and this realm has none")
    who, realm, trust = fold.entity(change.entity), fold.founding.id, gates.trust_of(fold.founding)
    stated = peer_addresses.judge(change.announcement, realm, who, trust, fold.revoked, at_us)
    if (stated.sequence, stated.serves) != (change.sequence, change.serves):
        raise Rejected(f"the address of {who.name!r} does not say what is said of it")


# --- tokens -------------------------------------------------------------------------------------------


def _vet_credential(fold: Fold, topic: str, subscriber: str, given: Credential | None, at_us: int) -> None:
    """TokenRejected, with the reason of the gate, unless the token lets this subscriber subscribe now."""
    if given is None:
        return
    about, who = fold.topic(topic), fold.entity(subscriber)
    gate = gates.gate(fold.founding, [fold.entity(about.center)], fold.revoked)
    token = gate.verify(given.token, about, at_us, Right.SUBSCRIBE, who.verify_key, holder=subscriber)
    if gates.credential(given.token, token) != given:
        raise Rejected(f"the token of {subscriber!r} for topic {topic!r} does not say what is said of it")
