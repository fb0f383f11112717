"""The overlay of a layered topic: which broker stands where, who reads below whom, and the keys that they announced."""

from __future__ import annotations

from typing import Final

from sealcast.errors import Misuse, NotFound, Rejected
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import AnnounceLayerKey, PlaceNode, PlaceSubscriber, RemoveNode, Right
from sealcast.trust.realm.overlays import MAX_BROKER_DEPTH, Leave
from sealcast.trust.realm.rules.draft import Draft, TopicTables
from sealcast.trust.realm.topics import LayerKey, Move

MAX_NODES: Final = 4_096
MAX_ANNOUNCEMENT_BYTES: Final = 512


def place_node(draft: Draft, change: PlaceNode) -> None:
    tables = _layered(draft, change.topic)
    broker, overlay = draft.holder(change.broker, Role.BROKER).name, tables.overlay
    if change.under is not None:
        if change.under not in overlay.parents:
            raise _no_node(change.topic, change.under)
        draft.holder(change.under, Role.BROKER)
    known = broker in overlay.parents
    if known and overlay.parents[broker] == change.under:
        where = "a root" if change.under is None else f"below {change.under!r}"
        raise Misuse(f"broker {broker!r} is {where} of topic {change.topic!r} already")
    if not known and len(overlay.parents) >= MAX_NODES:
        raise Misuse(f"an overlay has at most {MAX_NODES} brokers")
    if change.under is None and broker in overlay.places:
        raise _subscribing_root(broker)
    if change.under is not None:
        above = (change.under, *overlay.path_up(change.under))
        if broker in above:
            raise Misuse(
                f"broker {broker!r} cannot stand below {change.under!r}, which stands below it",
                hint=f"move that one first: sealcast overlay add {change.topic} {change.under} --under BROKER",
            )
        levels = max((overlay.depth(name) - overlay.depth(broker) for name in _branch(tables, broker)), default=0)
        if len(above) + 1 + levels > MAX_BROKER_DEPTH:
            raise Misuse(f"brokers stand at most {MAX_BROKER_DEPTH} deep")
    # A broker that is new, but reads as somebody's guest, stands from now on where it stands as a broker.
    if (known and overlay.has_below(broker)) or broker in overlay.places:
        _begin_generation(draft, tables, change.at_us)
    tables.nodes.write()[broker] = change.under
    if broker in overlay.places and change.under is not None:
        tables.places.write()[broker] = change.under


def remove_node(draft: Draft, change: RemoveNode) -> None:
    tables = _layered(draft, change.topic)
    overlay, broker = tables.overlay, change.broker
    if broker not in overlay.parents:
        raise _no_node(change.topic, broker)
    above = overlay.parents[broker]
    if above is None and (reading := next((n for n in overlay.children(broker) if n in overlay.places), None)):
        raise _subscribing_root(reading)
    moved = overlay.has_below(broker)
    children, guests = overlay.children(broker), overlay.subscribers(broker)
    nodes, places = tables.nodes.write(), tables.places.write()
    del nodes[broker]
    places.pop(broker, None)
    nodes.update(dict.fromkeys(children, above))
    for guest in guests:
        if above is None:
            # Below nobody: it is placed anew when it next subscribes.
            del places[guest]
        else:
            places[guest] = above
    if moved:
        _begin_generation(draft, tables, change.at_us)


def place_subscriber(draft: Draft, change: PlaceSubscriber) -> None:
    tables, who = _layered(draft, change.topic), draft.entity(change.subscriber)
    overlay = tables.overlay
    if change.broker is None:
        _unplace(tables, change)
        return
    if change.broker not in overlay.parents:
        raise _no_node(change.topic, change.broker)
    if who.revoked or Right.SUBSCRIBE not in tables.terms_of(who):
        draft.state().require(Right.SUBSCRIBE, change.topic, who.name)
    if who.name in overlay.parents:
        parent = overlay.parents[who.name]
        if parent is None:
            raise _subscribing_root(who.name)
        if parent != change.broker:
            raise Misuse(
                f"broker {who.name!r} stands below {parent!r}, and reads there",
                hint=f"sealcast overlay place {change.topic} {who.name} --at {parent}",
            )
    if overlay.places.get(who.name) == change.broker:
        raise Misuse(f"{who.name!r} is at broker {change.broker!r} already")
    # Whoever moves has rows all the way up, under keys that those above its new place do not have.
    if overlay.stood(who.name) not in (None, change.broker):
        _begin_generation(draft, tables, change.at_us)
    elif who.name in overlay.left:
        tables.left.write()[who.name] = Leave(change.broker, change.at_us)
    tables.places.write()[who.name] = change.broker


def _unplace(tables: TopicTables, change: PlaceSubscriber) -> None:
    """Whoever may not read any more stands nowhere: nobody can ask in its name from now on, not even the broker that it
    stood below. Everyone else's rows stay as they are."""
    if change.subscriber not in tables.overlay.places:
        raise NotFound(f"{change.subscriber!r} reads nowhere in the overlay of topic {change.topic!r}")
    tables.left.write()[change.subscriber] = Leave(tables.places.write().pop(change.subscriber))


def announce_layer_key(draft: Draft, change: AnnounceLayerKey) -> None:
    """What it says, and that it was signed, was verified when this was stored."""
    tables, who = _layered(draft, change.topic), draft.entity(change.entity)
    if who.revoked:
        raise Rejected(f"entity {who.name!r} was revoked (at version {who.revoked_at_version}); it announces no keys")
    if change.epoch != tables.topic.epoch:
        raise Misuse(f"topic {change.topic!r} is in epoch {tables.topic.epoch}, not {change.epoch}")
    if not 0 < len(change.announcement) <= MAX_ANNOUNCEMENT_BYTES:
        raise Misuse(f"an announcement has 1 to {MAX_ANNOUNCEMENT_BYTES} bytes, not {len(change.announcement)}")
    terms = tables.terms_of(who)
    if change.publishes and Right.PUBLISH not in terms:
        draft.state().require(Right.PUBLISH, change.topic, who.name)
    if change.publishes and who.name in tables.nodes.read:
        raise Misuse(
            f"broker {who.name!r} routes topic {change.topic!r}, and cannot stand above all its brokers as a publisher",
            hint="publish as another entity",
        )
    if not terms and who.name not in tables.nodes.read:
        raise Rejected(
            f"entity {who.name!r} has no part in topic {change.topic!r}: it neither routes, publishes nor reads there",
            hint=f"let it: sealcast grant {change.topic} {who.name} publish subscribe",
        )
    before = tables.layer_keys.read.get((change.epoch, who.name))
    promoted = before is not None and change.publishes and not before.publishes
    if before is not None and not (promoted and before.announcement == change.announcement):
        raise Misuse(
            f"{who.name!r} has announced its key for topic {change.topic!r}, epoch {change.epoch}",
            hint=f"a new epoch asks for a new one: sealcast topic rotate {change.topic}",
        )
    tables.layer_keys.write()[(change.epoch, who.name)] = LayerKey(change.announcement, change.publishes)


def _begin_generation(draft: Draft, tables: TopicTables, at_us: int) -> None:
    tables.moves = (*tables.moves, Move(draft.version + 1, at_us))
    tables.left.write().clear()


def _layered(draft: Draft, topic: str) -> TopicTables:
    tables = draft.tables(topic)
    if not tables.topic.protection.overlay:
        raise Misuse(
            f"topic {topic!r} has no overlay: its protection is {tables.topic.protection.name!r}",
            hint="one that has: sealcast topic create NAME --schema FILE --protection layered",
        )
    return tables


def _branch(tables: TopicTables, broker: str) -> list[str]:
    """A broker and all below it; nobody, if it is not there yet."""
    overlay = tables.overlay
    waiting, found = [broker] if broker in overlay.parents else [], list[str]()
    while waiting:
        at = waiting.pop()
        found.append(at)
        waiting.extend(overlay.children(at))
    return found


def _no_node(topic: str, broker: str) -> NotFound:
    return NotFound(
        f"{broker!r} is no broker of topic {topic!r}'s overlay",
        hint=f"those that are: sealcast overlay show {topic}; one more: sealcast overlay add {topic} {broker}",
    )


def _subscribing_root(broker: str) -> Misuse:
    return Misuse(
        f"broker {broker!r} subscribes, and a root cannot: right below the publishers nothing is hidden from it",
        hint="let it stand below another broker, or subscribe as another entity",
    )
