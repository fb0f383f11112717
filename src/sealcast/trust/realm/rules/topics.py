"""Topics, their epochs, and the keys that are handed out in each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sealcast.errors import Misuse, Rejected
from sealcast.model.evolution import MAX_VERSIONS, check_domains_stay, check_evolution
from sealcast.model.schema import Schema
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import (
    AlterTopic,
    AnnounceReceivingKey,
    BeginIncarnation,
    CreateTopic,
    DeleteTopic,
    ForgetEpochs,
    PublishPairKey,
    PublishTopicKey,
    RotateTopic,
)
from sealcast.trust.realm.rules.draft import Draft, TopicTables
from sealcast.trust.realm.rules.names import check_name
from sealcast.trust.realm.topics import FIRST_EPOCH, DeletedTopic, ReceivingKey, Topic, TopicState

GROUP_KEYS: Final = ("mosaic", "naive", "simple", "build-up", "clustered", "clustered-popular", "key-tree")
MAX_PARTITIONS: Final = 1024
TOPIC_ID_BYTES: Final = 16
MAX_SEALED_KEY_BYTES: Final = 1_600
#: Of a topic's key that is sealed to a broker's receiving key (`keys.receiving`), and of such a key's public half.
RECEIVED_KEY_BYTES: Final = 1176
RECEIVING_KEY_BYTES: Final = 1216
INCARNATION_BYTES: Final = 16
#: The parameters that can be altered later.
_ALTERED: Final = ("frames_kept_s", "past_keys", "pieces_kept_s", "pieces_kept_bytes", "frames_kept_bytes")


def create_topic(draft: Draft, change: CreateTopic) -> None:
    check_name("topic", change.name)
    if change.name in draft.deleted.read:
        raise Misuse(
            f"there was a topic {change.name!r} before, and the names of deleted topics are not given again",
            hint="readers elsewhere may still hold places in the one that was: choose another name",
        )
    if change.name in draft.topics.read or change.name in draft.open:
        raise Misuse(f"topic {change.name!r} exists already", hint=f"see it: sealcast topic show {change.name}")
    if not 1 <= change.partitions <= MAX_PARTITIONS:
        raise Misuse(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {change.partitions}")
    if change.protection.peers and change.partitions != 1:
        raise Misuse(
            f"topic {change.name!r} has no partitions to spread publishers over: each has a log of its own",
            hint="leave the number of partitions out",
        )
    for name in sorted(change.protection.hidden - set(change.schema.by_name)):
        raise Misuse(f"topic {change.name!r} has no attribute {name!r} to seal", hint="name attributes of its schema")
    if change.group_keys not in GROUP_KEYS:
        raise Misuse(f"group keys are made by one of {', '.join(GROUP_KEYS)}, not {change.group_keys!r}")
    if len(change.id) != TOPIC_ID_BYTES:
        raise Misuse(f"a topic's id has {TOPIC_ID_BYTES} bytes, not {len(change.id)}")
    if change.center:
        draft.holder(change.center, Role.KEY_CENTER)
    elif draft.founding is not None:
        raise Misuse(f"topic {change.name!r}: a topic is registered with one key center, and none was named")
    if change.owner:
        draft.entity(change.owner)
    topic = Topic(
        change.name,
        change.id,
        change.schema,
        change.partitions,
        change.protection,
        FIRST_EPOCH,
        change.access,
        change.center,
        change.parameters,
        (change.at_us,),
        change.owner,
        group_keys=change.group_keys,
        chained_since=FIRST_EPOCH if change.chained else 0,
    )
    _check_kept(topic)
    draft.open[change.name] = TopicTables(TopicState(topic))


def _check_kept(topic: Topic) -> None:
    if topic.parameters.forgets and topic.protection.peers:
        raise Misuse(
            f"topic {topic.name!r} has no brokers that could forget keys: its publishers and subscribers carry it",
            hint="leave past_keys at kept",
        )


def announce_receiving_key(draft: Draft, change: AnnounceReceivingKey) -> None:
    broker, tables = draft.holder(change.broker, Role.BROKER), draft.tables(change.topic)
    if not tables.topic.parameters.forgets:
        raise Misuse(
            f"brokers keep their keys of topic {change.topic!r}: they are handed none by receiving keys",
            hint=f"let them forget: sealcast topic alter {change.topic} --past-keys forgotten",
        )
    known = tables.receiving_keys.read.get(broker.name)
    expected = 1 if known is None else known.number + 1
    if change.number != expected:
        raise Misuse(f"the next receiving key of {broker.name!r} has number {expected}, not {change.number}")
    if len(change.public) != RECEIVING_KEY_BYTES:
        raise Misuse(f"a receiving key has {RECEIVING_KEY_BYTES} bytes, not {len(change.public)}")
    tables.receiving_keys.write()[broker.name] = ReceivingKey(change.number, change.public)


def alter_topic(draft: Draft, change: AlterTopic) -> None:
    tables = draft.tables(change.topic)
    tables.topic = replace(tables.topic, access=change.access)
    given = {name: getattr(change, name) for name in _ALTERED if getattr(change, name) is not None}
    if given:
        tables.topic = replace(tables.topic, parameters=replace(tables.topic.parameters, **given))
        _check_kept(tables.topic)
    if change.schema is not None and change.schema != tables.topic.schema:
        tables.topic = _evolve(tables.topic, change.schema)


def _evolve(topic: Topic, schema: Schema) -> Topic:
    check_evolution(topic.schema, schema)
    if "wider domains" in topic.protection.lacks:
        check_domains_stay(topic.schema, schema, topic.protection.lacks["wider domains"])
    if len(topic.earlier_schemas) + 1 >= MAX_VERSIONS:
        raise Misuse(f"topic {topic.name!r} has had {MAX_VERSIONS} versions of its schema, and cannot have more")
    earlier, until = (*topic.earlier_schemas, topic.schema), (*topic.schemas_until, topic.epoch)
    return replace(topic, schema=schema, earlier_schemas=earlier, schemas_until=until)


def delete_topic(draft: Draft, change: DeleteTopic) -> None:
    tables = draft.tables(change.topic)
    owners, ended = draft.owners.write(), draft.ended.write()
    for id, each in tables.subscriptions.read.items():
        owners[id], ended[id] = None, each.subscriber
    began_us = tables.topic.epoch_starts[max(tables.topic.chained_since, FIRST_EPOCH) - FIRST_EPOCH]
    draft.deleted.write()[change.topic] = DeletedTopic(tables.topic.id, draft.version + 1, began_us)
    draft.open.pop(change.topic)
    draft.topics.write().pop(change.topic, None)


def rotate_topic(draft: Draft, change: RotateTopic) -> None:
    tables = draft.tables(change.topic)
    topic = tables.topic
    if change.epoch != topic.epoch + 1:
        raise Misuse(f"topic {topic.name!r} is in epoch {topic.epoch}: the next is not {change.epoch}")
    if change.at_us < topic.epoch_starts[-1]:
        raise Misuse(
            f"topic {topic.name!r}: epoch {change.epoch} would start before epoch {topic.epoch} did",
            hint="this machine's clock, or the one that started the epoch before, is wrong",
        )
    rotated = replace(topic, epoch=change.epoch, epoch_starts=(*topic.epoch_starts, change.at_us))
    if change.center and change.center != topic.center:
        draft.holder(change.center, Role.KEY_CENTER)
        rotated = replace(rotated, center=change.center, center_since=change.epoch, chained_since=0)
    if change.chained and not rotated.chained_since:
        rotated = replace(rotated, chained_since=change.epoch)
    tables.topic = rotated


def forget_epochs(draft: Draft, change: ForgetEpochs) -> None:
    tables = draft.tables(change.topic)
    topic = tables.topic
    if not topic.forgotten_before < change.before <= topic.epoch:
        raise Misuse(
            f"topic {topic.name!r} is in epoch {topic.epoch} and has forgotten those before {topic.forgotten_before}: "
            f"those before {change.before} cannot be forgotten",
            hint="begin a new epoch first: sealcast topic rotate",
        )
    tables.topic = replace(topic, forgotten_before=change.before)


def publish_topic_key(draft: Draft, change: PublishTopicKey) -> None:
    broker, tables = draft.holder(change.broker, Role.BROKER), draft.tables(change.topic)
    if not FIRST_EPOCH <= change.epoch <= tables.topic.epoch:
        raise Misuse(f"topic {change.topic!r} is in epoch {tables.topic.epoch}; it has no epoch {change.epoch}")
    if len(change.sealed) != RECEIVED_KEY_BYTES:
        _check_sealed("topic", change.sealed)
    if (change.epoch, broker.name) in tables.topic_keys.read:
        raise Misuse(f"broker {broker.name!r} has the key of topic {change.topic!r}, epoch {change.epoch}")
    tables.topic_keys.write()[(change.epoch, broker.name)] = change.sealed


def publish_pair_key(draft: Draft, change: PublishPairKey) -> None:
    who, tables = draft.entity(change.entity), draft.tables(change.topic)
    if who.revoked:
        raise Rejected(f"entity {change.entity!r} was revoked (at version {who.revoked_at_version}); it gets no keys")
    if change.epoch != tables.topic.epoch:
        raise Misuse(f"topic {change.topic!r} is in epoch {tables.topic.epoch}, not {change.epoch}")
    _check_sealed("pair", change.sealed)
    if (change.epoch, change.entity) in tables.pair_keys.read:
        raise Misuse(f"entity {change.entity!r} has its pair key for topic {change.topic!r}, epoch {change.epoch}")
    tables.pair_keys.write()[(change.epoch, change.entity)] = change.sealed


def _check_sealed(what: str, sealed: bytes) -> None:
    if not 0 < len(sealed) <= MAX_SEALED_KEY_BYTES:
        raise Misuse(f"a sealed {what} key has 1 to {MAX_SEALED_KEY_BYTES} bytes, not {len(sealed)}")


def begin_incarnation(draft: Draft, change: BeginIncarnation) -> None:
    tables, broker = draft.tables(change.topic), draft.holder(change.broker, Role.BROKER)
    if tables.topic.protection.peers:
        raise Misuse(
            f"no broker seals events of topic {change.topic!r}: publishers and subscribers carry it themselves"
        )
    if len(change.incarnation) != INCARNATION_BYTES:
        raise Misuse(f"an incarnation has {INCARNATION_BYTES} bytes, not {len(change.incarnation)}")
    tables.incarnations.write()[broker.name, draft.version + 1] = change.incarnation
