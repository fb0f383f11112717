"""Everyone whose keys are on this machine, together: many subscribers state their filters, or tell their brokers.

It comes to the same as one after the other: each has its own keys, its own files, its own token and its own signed
posts. What is shared is the effort: places and announced keys are one transaction each, a key center that is at hand
decides about all tokens in one go, and posts for one broker are one durable append (`telling`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from sealcast.control import wallet
from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.protections.layered.interests import LayeredInterests, own_filters
from sealcast.protections.layered.participant import trees_now
from sealcast.protections.layered.telling import Refreshed, RightChanges, tell
from sealcast.protections.own_filters import keepers
from sealcast.protections.port import Interest, Wanted
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys import layer_keys
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState

#: Subscribers at a time: each has a lock of its own open meanwhile.
AT_A_TIME: Final = 128


def subscribe_together(
    realm: EntityRealm, topic: str, wanted: Sequence[Wanted], *, broker: str | None = None
) -> list[Interest]:
    """Each filter by its subscriber; of one subscriber all, or none. Whoever is new gets a place, at `broker` if it is
    named."""
    by_name = dict[str, list[tuple[str, str | None]]]()
    for name, text, id in wanted:
        by_name.setdefault(name, []).append((text, id))
    stated, decided = dict[str, list[Interest]](), RightChanges(realm, topic)
    with ExitStack() as held:
        everyone = {name: held.enter_context(LayeredInterests(realm, topic, name)) for name in sorted(by_name)}
        for name, interests in everyone.items():
            interests.check(by_name[name], broker)
        # All of them before anybody says anything: who stands where is then settled, and nobody looks through it again.
        realm.place_subscribers(topic, list(everyone), broker)
        _announce(realm, topic, everyone)
        for names in _parts(list(everyone)):
            each = {name: everyone[name] for name in names}
            kept = {name: interests.keep(by_name[name]) for name, interests in each.items()}
            for name, done in _tell(realm, topic, each, decided):
                each[name].trouble = done if isinstance(done, SealcastError) else None
            stated |= {name: interests.stated(kept[name]) for name, interests in each.items()}
    return [interest for name in by_name for interest in stated[name]]


def subscribers_here(realm: EntityRealm, state: RealmState, topic: str) -> list[str]:
    """The subscribers of a layered topic whose own keys and filters are on this machine."""
    found = keepers(realm.paths.root / "wallets", state.topic(topic).id)
    return [name for name in found if name in state.entities and layer_keys.key_file(realm, state, name).exists()]


def refresh_all(
    realm: EntityRealm, topics: Iterable[str] | None = None
) -> Iterator[tuple[str, str, Refreshed | SealcastError]]:
    """`LayeredInterests.refresh` for every subscriber of layered topics whose keys are here and who has something to
    tell its broker: (topic, name, what came of it)."""
    state = realm.state()
    for topic in state.topics if topics is None else topics:
        if not state.topic(topic).protection.overlay:
            continue
        decided, due = RightChanges(realm, topic), list[str]()
        for name in subscribers_here(realm, state, topic):
            try:
                if _is_due(realm, state, topic, name, decided):
                    due.append(name)
            except (Unavailable, Rejected, Misuse) as error:
                yield topic, name, error
        for names in _parts(due):
            yield from ((topic, name, done) for name, done in _refreshed(realm, topic, names, decided))


def _refreshed(
    realm: EntityRealm, topic: str, names: Sequence[str], decided: RightChanges
) -> Iterator[tuple[str, Refreshed | SealcastError]]:
    with ExitStack() as held:
        each = dict[str, LayeredInterests]()
        for name in names:
            try:
                each[name] = held.enter_context(LayeredInterests(realm, topic, name))
            except (Unavailable, Rejected, Misuse) as error:
                # Keys under another lock, a center that is away: one's trouble is not the others'.
                yield name, error
        yield from _tell(realm, topic, each, decided)


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + AT_A_TIME] for start in range(0, len(names), AT_A_TIME))


def _is_due(realm: EntityRealm, state: RealmState, topic: str, name: str, decided: RightChanges) -> bool:
    own, home, now = own_filters(realm, state, topic, name), state.overlay(topic).places.get(name), realm.clock()
    told, numbers = own.told(), own.numbers()
    if not numbers or not state.may_subscribe(topic, name, now):
        return False
    return told.is_due(numbers, home, trees_now(state, topic, name), now) or decided.since(
        told.version, state.version, name
    )


def _announce(realm: EntityRealm, topic: str, each: Mapping[str, LayeredInterests]) -> None:
    """Keys of this epoch for those who have none, in one transaction."""
    layer_keys.make_many(realm, realm.state(), topic, each)
    keyrings = [interests.keyring for interests in each.values()]
    authors = [keyring.author for keyring in keyrings]
    realm.registry.transact(lambda state: [key for each in keyrings for key in each.missing(state, topic)], *authors)


def _tell(
    realm: EntityRealm, topic: str, each: Mapping[str, LayeredInterests], decided: RightChanges
) -> Iterator[tuple[str, Refreshed | SealcastError]]:
    wallet.fill([interests.wallet for interests in each.values()], topic, Right.SUBSCRIBE)
    yield from tell(realm, topic, {name: interests.telling(decided) for name, interests in each.items()}).items()
