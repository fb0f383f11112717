"""A realm as one handle: everything a command or a client takes, and what its administrator does.

Opening a realm reads public things only. What an administrator does (enrol, create, grant, subscribe) also needs the
broker's secrets, because whoever gets a right gets the pair key that goes with it, in the same transaction; they are
read when that happens and not before, so a client can hold this handle on a machine that has no secrets at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sealcast.errors import Misuse
from sealcast.log import files
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model.schema import Schema
from sealcast.model.subscription import Subscription
from sealcast.trust import layout, vetting
from sealcast.trust.broker import BrokerSecrets
from sealcast.trust.changes import (
    Access,
    AddSubscription,
    Change,
    CreateTopic,
    EnrolEntity,
    Grant,
    RemoveSubscription,
    Revoke,
    RevokeEntity,
    Right,
)
from sealcast.trust.identity import Identity
from sealcast.trust.layout import Layout, Mark
from sealcast.trust.realm import KEY_BYTES, Entity, Fold, RealmState, Topic, apply
from sealcast.trust.registry import Registry

BOTH: Final = (Right.PUBLISH, Right.SUBSCRIBE)


class Realm:
    """One deployment: its registry, its topics, and where its files lie."""

    def __init__(self, directory: str | Path | None = None) -> None:
        """The realm in `directory`; without one, of SEALCAST_REALM or around the working directory."""
        self.paths: Layout = layout.find(Path(directory) if directory is not None else None)
        mark = layout.read_mark(self.paths)
        self.name = mark.name
        self.id = mark.id
        self.registry = Registry(self.paths.registry)

    @classmethod
    def create(cls, directory: str | Path, name: str | None = None) -> Realm:
        """A new realm in a directory that is empty or does not exist yet."""
        root = Path(directory).absolute()
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            known = (root / "realm.json").exists()
            raise Misuse(
                f"{root} {'is a realm already' if known else 'exists and is not empty'}",
                hint=f"use it: --realm {root}" if known else "name a new directory",
            )
        paths = Layout(root)
        for directory in (paths.secrets, paths.entities, root / "topics"):
            files.make_directory(directory)
        BrokerSecrets.generate().save(paths.broker_key)
        Registry.create(paths.registry)
        # Last, because it is what makes the directory a realm: before it, `init` can simply be run again elsewhere.
        files.replace_file(paths.mark, Mark(name or root.name, os.urandom(16)).to_bytes())
        return cls(root)

    def state(self, version: int | None = None) -> RealmState:
        return self.registry.state(version)

    def identity(self, name: str) -> Identity:
        """The keys of an enrolled entity, from its own file."""
        self.state().entity(name)
        return Identity.load(self.paths.entity_key(name), name)

    def broker(self) -> BrokerSecrets:
        """The trusted broker's secrets: for the pipeline and the administrator."""
        return BrokerSecrets.load(self.paths.broker_key)

    # --- what an administrator does -----------------------------------------------------------------

    def enrol(self, name: str) -> Entity:
        """A new entity: its keys in its own file, its public keys in the registry, its pair keys issued."""
        return self.enrol_many([name])[0]

    def enrol_many(self, names: Sequence[str]) -> list[Entity]:
        """All of them, or none."""
        broker, made = self.broker(), []

        def decide(state: RealmState) -> list[Change]:
            changes, rehearsal = list[Change](), Fold(state)
            members = [t.topic for t in state.topics.values() if t.topic.access is Access.MEMBERS]
            for name in names:
                # The rules come first: a name they refuse must not become a file name.
                rehearsal.apply(EnrolEntity(name, bytes(KEY_BYTES), bytes(KEY_BYTES)))
                enrolment = self._keys_for(name).enrolment()
                entity = Entity(name, enrolment.verify_key, enrolment.kem_public)
                changes += [enrolment, *(broker.issue_pair_key(topic, entity) for topic in members)]
                made.append(entity)
            return changes

        self.registry.transact(decide)
        return made

    def revoke_entity(self, name: str) -> int:
        """Ends an entity: nothing it publishes is admitted and nothing is sealed for it from the next batch on."""
        return self.registry.apply(RevokeEntity(name))

    def create_topic(
        self,
        name: str,
        schema: Schema,
        *,
        partitions: int = 1,
        protection: str = "endpoint",
        access: Access | str = Access.MEMBERS,
    ) -> Topic:
        if access not in Access._value2member_map_:
            raise Misuse(f"access is one of {', '.join(Access)}, not {access!r}")
        broker = self.broker()
        create = CreateTopic(name, os.urandom(16), schema, partitions, protection, Access(access))

        def decide(state: RealmState) -> list[Change]:
            topic = apply(state, create).topic(name)
            if topic.access is not Access.MEMBERS:
                return [create]
            live = (e for e in state.entities.values() if not e.revoked)
            return [create, *(broker.issue_pair_key(topic, entity) for entity in live)]

        made = self.registry.transact(decide).topic(name)
        # The registry is what counts: whoever opens the log makes what is missing, should this be cut short.
        paths = self.paths.topic(name)
        EmbeddedTopic(paths.frames_root, partitions).close()
        for directory in (paths.pieces, paths.ledger, paths.cursors):
            files.make_directory(directory)
        return made

    def grant(self, topic: str, entity: str, rights: Iterable[Right] = BOTH) -> RealmState:
        """Rights for an entity, and the pair key it needs to use them."""
        broker, change = self.broker(), Grant(topic, entity, tuple(rights))

        def decide(state: RealmState) -> list[Change]:
            after = apply(state, change)
            about = after.topic(topic)
            issued = after.pair_key(topic, about.epoch, entity) is not None
            changes: list[Change] = [] if _same_rights(state, after, topic, entity) else [change]
            return changes if issued else [*changes, broker.issue_pair_key(about, after.entity(entity))]

        return self.registry.transact(decide)

    def revoke(self, topic: str, entity: str, rights: Iterable[Right] = BOTH) -> RealmState:
        """Takes rights away; subscriptions stay and sleep until the right comes back."""
        change = Revoke(topic, entity, tuple(rights))

        def decide(state: RealmState) -> list[Change]:
            return [] if _same_rights(state, apply(state, change), topic, entity) else [change]

        return self.registry.transact(decide)

    def subscribe(self, topic: str, subscriber: str, filter: str, id: str | None = None) -> Subscription:
        """A subscription; without an id it gets the subscriber's name and a number."""
        return self.subscribe_many(topic, [(subscriber, filter, id)])[0]

    def subscribe_many(self, topic: str, wanted: Sequence[tuple[str, str, str | None]]) -> list[Subscription]:
        """(subscriber, filter, id or None) each: all of them, or none."""
        made: list[Subscription] = []

        def decide(state: RealmState) -> list[Change]:
            numbers: dict[str, int] = {}
            taken: Mapping[str, object] = state.subscription_topics
            fresh = {id for _, _, id in wanted if id is not None}
            changes: list[Change] = []
            for subscriber, filter, given in wanted:
                id = given
                while id is None or (given is None and (id in taken or id in fresh)):
                    numbers[subscriber] = numbers.get(subscriber, 0) + 1
                    id = f"{subscriber}-{numbers[subscriber]}"
                changes.append(AddSubscription(id, topic, subscriber, filter))
                made.append(Subscription(id, topic, subscriber, filter))
            return [*changes, *self._missing_keys(state, topic, {s for s, _, _ in wanted})]

        self.registry.transact(decide)
        return made

    def remarks(self, topic: str, filter: str) -> list[str]:
        """What the author of a filter should know of it; FilterRejected when it does not fit the topic."""
        return vetting.remarks(self.state().topic(topic).schema, filter)

    def unsubscribe(self, *ids: str) -> int:
        """Ends subscriptions, all of them or none; the version from which on it counts."""
        return self.registry.apply_many([RemoveSubscription(id) for id in ids])

    # --- inside -------------------------------------------------------------------------------------

    def _missing_keys(self, state: RealmState, topic: str, names: set[str]) -> list[Change]:
        about = state.topic(topic)
        missing = [n for n in sorted(names) if state.pair_key(topic, about.epoch, n) is None]
        if not missing:
            return []
        broker = self.broker()
        return [broker.issue_pair_key(about, state.entity(n)) for n in missing]

    def _keys_for(self, name: str) -> Identity:
        path = self.paths.entity_key(name)
        if path.exists():
            # Left behind by an enrolment that was cut short: never made public, so as good as new.
            return Identity.load(path, name)
        identity = Identity.generate(name)
        identity.save(path)
        return identity


def _same_rights(before: RealmState, after: RealmState, topic: str, entity: str) -> bool:
    return before.topic_state(topic).rights_of(entity) == after.topic_state(topic).rights_of(entity)
