"""The client side of `searchable`: what leaves publishers and subscribers is ciphertext that brokers can compare.

event  ── labels ── trapdoors ──> block | envelope, to one broker
filter ── own_filters ── labels ── sealed filter ──> the registry, in every epoch anew
a mailbox's delivery ── open ──> OpenedEvent
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from sealcast.control import wallet
from sealcast.errors import Misuse, Rejected, SealcastError, Unavailable
from sealcast.protections.enveloped.client import EnvelopedInbox, EnvelopedSide, EnvelopedWay
from sealcast.protections.labelled import LabelledSide
from sealcast.protections.own_filters import OwnFilter, keepers
from sealcast.protections.port import ClientSide, Interest, Reader, Wanted
from sealcast.protections.searchable.interests import SealedInterests, own_id, registered, sealed_text
from sealcast.protections.searchable.keys import settings_of, user_keys
from sealcast.protections.searchable.open import SearchableOpener
from sealcast.protections.searchable.publish import SearchableSealer
from sealcast.trust.admin import subscriptions
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.topic_keys import ContentKey, EntityKeys
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

#: Subscribers at a time: each has a file of its own open meanwhile.
AT_A_TIME: Final = 128


class SearchableWay(EnvelopedWay):
    """A publisher's way: trapdoors for the broker, an envelope for readers."""

    def __init__(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> None:
        super().__init__(topic, identity, broker)
        self._realm, self._epoch = realm, 0

    def sealer(self, about: Topic, epoch: int, keys: EntityKeys, content: ContentKey) -> SearchableSealer:
        search, secret = user_keys(keys, about, epoch, self._identity.name), content.of_publisher(self._identity.name)
        return SearchableSealer(about, epoch, secret, search, fresh=settings_of(about).fresh)

    def take(self, state: RealmState, epoch: int) -> Sequence[str]:
        found = super().take(state, epoch)
        if self._epoch != epoch:
            self._epoch = epoch
            # Who wants something registers it in a new epoch when it hears of it. Those whose keys are at hand, as in a
            # realm that lives in one directory, do it now: before the first event, and not some time after it.
            for _ in refresh_here(self._realm, self._topic):
                pass  # what one of them cannot do now, it does later; the publisher goes on
        return found


class SearchableInbox(EnvelopedInbox):
    """One reader's events, and its filters registered in every epoch while it reads."""

    def __init__(self, reader: Reader, side: EnvelopedSide) -> None:
        self._interests = SealedInterests(reader.realm, reader.topic, reader.name)
        self._looked: RealmState | None = None
        try:
            self._interests.try_refresh()
            super().__init__(reader, side)
        except BaseException:
            self._interests.close()
            raise

    @property
    def trouble(self) -> SealcastError | None:
        return self._interests.trouble or super().trouble

    def look(self, state: RealmState) -> None:
        super().look(state)
        if state is not self._looked:
            self._interests.try_refresh()
            self._looked = state

    def close(self) -> None:
        super().close()
        self._interests.close()


def refresh_here(realm: EntityRealm, topic: str) -> Iterator[tuple[str, bool | SealcastError]]:
    """`SealedInterests.refresh` for every subscriber whose keys are here and who has something to register."""
    state = realm.state()
    known, now = registered(state, topic), realm.clock()
    here = [name for name in _keepers(realm, state, topic) if state.may_subscribe(topic, name, now)]
    for first in range(0, len(here), AT_A_TIME):
        with ExitStack() as held:
            due = list[SealedInterests]()
            for name in here[first : first + AT_A_TIME]:
                try:
                    interests = held.enter_context(SealedInterests(realm, topic, name))
                    if interests.is_due(state, known.get(name, ())):
                        due.append(interests)
                except (Unavailable, Rejected, Misuse) as error:
                    yield name, error  # keys under another lock, say: one's trouble is not the others'
            wallet.fill([each.wallet for each in due], topic, Right.SUBSCRIBE)
            for each in due:
                done = each.try_refresh()
                yield each.name, each.trouble or bool(done)


def _keepers(realm: EntityRealm, state: RealmState, topic: str) -> list[str]:
    found = keepers(realm.paths.root / "wallets", state.topic(topic).id)
    return [name for name in found if name in state.entities and realm.paths.entity_key(name).exists()]


class SearchableClient(LabelledSide, EnvelopedSide):
    opener = SearchableOpener

    def way(self, realm: EntityRealm, topic: str, identity: Identity, broker: str) -> SearchableWay:
        return SearchableWay(realm, topic, identity, broker)

    def inbox(self, reader: Reader) -> SearchableInbox:
        return SearchableInbox(reader, self)

    def asked_in(self, epoch: int, about: Topic, reader: str, keys: EntityKeys, text: str) -> str:
        return sealed_text(text, about, user_keys(keys, about, epoch, reader))

    def interests(self, realm: EntityRealm, topic: str, subscriber: str) -> SealedInterests:
        return SealedInterests(realm, topic, subscriber)

    def subscribe_many(
        self, realm: Realm, topic: str, wanted: Sequence[Wanted], *, broker: str | None = None
    ) -> list[Interest]:
        """Each filter is sealed with its subscriber's own keys. All of them are registered, or none."""
        state, by_name = realm.state(), dict[str, list[tuple[str, str | None]]]()
        for name, text, id in wanted:
            by_name.setdefault(name, []).append((text, id))
        kept, rows = dict[SealedInterests, list[OwnFilter]](), list[Wanted]()
        with ExitStack() as held:
            everyone = [held.enter_context(SealedInterests(realm, topic, name)) for name in by_name]
            for name in by_name:
                state.require(Right.SUBSCRIBE, topic, name, realm.clock())
            try:
                for first in range(0, len(everyone), AT_A_TIME):
                    some = everyone[first : first + AT_A_TIME]
                    kept |= SealedInterests.keep_all({each: by_name[each.name] for each in some}, state)
                for each, filters in kept.items():
                    fresh = each.unregistered(state, filters)
                    rows += [(each.name, text, id) for id, text in each.sealed(state, fresh)]
                subscriptions.subscribe_many(realm, topic, rows, broker=broker)
            except BaseException:
                for each, filters in kept.items():
                    each.withdraw(filters)
                raise
        homes, order = realm.state(), {each.name: iter(filters) for each, filters in kept.items()}
        made = ((name, next(order[name])) for name, _, _ in wanted)
        return [Interest(own.id, topic, name, own.text, homes.home_of(topic, name)) for name, own in made]

    def listed(self, realm: EntityRealm, topic: str, subscriber: str | None = None) -> list[Interest]:
        if subscriber is not None:
            with SealedInterests(realm, topic, subscriber) as interests:
                return interests.filters()
        state = realm.state()
        found = {(each.subscriber, own_id(each.id)[0]): None for each in state.subscriptions_of(topic)}
        return [Interest(id, topic, name, None, state.home_of(topic, name)) for name, id in found]

    def filter_owners(self, realm: EntityRealm, topic: str) -> list[str]:
        return _keepers(realm, realm.state(), topic)

    def refresh_here(self, realm: EntityRealm, topic: str) -> Iterator[tuple[str, bool | SealcastError]]:
        return refresh_here(realm, topic)


_SIDE: Final = SearchableClient()
CLIENT: Final[ClientSide] = _SIDE
opener_for = _SIDE.opener_for
