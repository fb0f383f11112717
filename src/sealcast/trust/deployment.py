"""A realm as one handle: everything a command or a client takes, and what its administrator does.

Opening a realm reads public things only. What an administrator does (enrol, create, grant, subscribe) also needs the
secrets of key centers, because whoever gets a right gets the keys that go with it, in the same transaction; they are
read when that happens and not before, so a client can hold this handle on a machine that has no secrets at all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sealcast.errors import Misuse
from sealcast.log import files
from sealcast.log.embedded import EmbeddedTopic
from sealcast.model.schema import Schema
from sealcast.model.subscription import Subscription
from sealcast.trust import layout, vetting
from sealcast.trust.broker import BrokerSecrets
from sealcast.trust.centers import CenterSecrets
from sealcast.trust.changes import (
    DEFAULT_PARAMETERS,
    EVERYTHING,
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
from sealcast.trust.issuing import Issuer
from sealcast.trust.layout import FIRST_BROKER, FIRST_CENTER, Layout, Mark
from sealcast.trust.parameters import KeyParameters
from sealcast.trust.realm import KEY_BYTES, Entity, Fold, RealmState, Topic, apply
from sealcast.trust.registry import Registry
from sealcast.trust.roles import Role
from sealcast.trust.storage import address

BOTH: Final = (Right.PUBLISH, Right.SUBSCRIBE)


def now_us() -> int:
    return time.time_ns() // 1000


class Realm:
    """One deployment: its registry, its topics, and where its files lie."""

    def __init__(self, directory: str | Path | None = None, *, clock: Callable[[], int] = now_us) -> None:
        """The realm in `directory`; without one, of SEALCAST_REALM or around the working directory.

        `clock` says what time it is, in microseconds since 1970: of what is decided, and of what is asked for.
        """
        self.paths: Layout = layout.find(Path(directory) if directory is not None else None)
        mark = layout.read_mark(self.paths)
        self.name = mark.name
        self.id = mark.id
        self.registry = Registry(mark.registry_address(self.paths), realm=mark.id)
        self.clock = clock

    @classmethod
    def create(
        cls,
        directory: str | Path,
        name: str | None = None,
        *,
        registry: str | None = None,
        clock: Callable[[], int] = now_us,
    ) -> Realm:
        """A new realm in a directory that is empty or does not exist yet; its registry there too, or at a URL."""
        root = Path(directory).absolute()
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            known = (root / "realm.json").exists()
            raise Misuse(
                f"{root} {'is a realm already' if known else 'exists and is not empty'}",
                hint=f"use it: --realm {root}" if known else "name a new directory",
            )
        paths, mark = Layout(root), Mark(name or root.name, os.urandom(16), registry and address.written(registry))
        files.make_directory(root)
        # First, because it can fail for reasons that are not here: an empty directory can be tried again.
        changes = Registry.create(mark.registry_address(paths), realm=mark.id)
        for directory in (paths.secrets, paths.entities, root / "topics"):
            files.make_directory(directory)
        center, broker = CenterSecrets.generate(), BrokerSecrets.generate()
        center.save(paths.center_key(center.name))
        broker.save(paths.broker_key)
        changes.apply_many([center.identity.enrolment(Role.KEY_CENTER), broker.identity.enrolment(Role.BROKER)])
        # Last, because it is what makes the directory a realm: before it, `init` can simply be run again elsewhere.
        files.replace_file(paths.mark, mark.to_bytes())
        return cls(root, clock=clock)

    def state(self, version: int | None = None) -> RealmState:
        return self.registry.state(version)

    def identity(self, name: str) -> Identity:
        """The keys of an enrolled entity, from its own file."""
        self.state().entity(name)
        return Identity.load(self.paths.entity_key(name), name)

    def broker(self, name: str = FIRST_BROKER) -> BrokerSecrets:
        """A trusted broker's secrets: for the pipeline."""
        return BrokerSecrets.load(self.paths.broker_key_of(name))

    def center(self, name: str = FIRST_CENTER) -> CenterSecrets:
        """A key center's secrets: for the center, and for the administrator where they are at hand."""
        return CenterSecrets.load(self.paths.center_key(name))

    # --- what an administrator does -----------------------------------------------------------------

    def enrol(self, name: str) -> Entity:
        """A new entity: its keys in its own file, its public keys in the registry, its pair keys issued."""
        return self.enrol_many([name])[0]

    def enrol_many(self, names: Sequence[str]) -> list[Entity]:
        """All of them, or none."""
        issuer, made = Issuer(self.paths), list[Entity]()

        def decide(state: RealmState) -> list[Change]:
            changes, rehearsal = list[Change](), Fold(state)
            topics = issuer.for_newcomer(state)
            for name in names:
                # The rules come first: a name they refuse must not become a file name.
                rehearsal.apply(EnrolEntity(name, bytes(KEY_BYTES), bytes(KEY_BYTES)))
                enrolment = self._keys_for(name).enrolment()
                entity = Entity(name, enrolment.verify_key, enrolment.kem_public)
                changes += [enrolment, *(keys.for_entity(topic, entity) for topic, keys in topics)]
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
        center: str = FIRST_CENTER,
        parameters: KeyParameters = DEFAULT_PARAMETERS,
        owner: str = "",
    ) -> Topic:
        """A topic with its schema, registered with its one key center, which makes its keys as `parameters` say."""
        if access not in Access._value2member_map_:
            raise Misuse(f"access is one of {', '.join(Access)}, not {access!r}")
        now, issuer = self.clock(), Issuer(self.paths)
        create = CreateTopic(
            name, os.urandom(16), schema, partitions, protection, Access(access), center, parameters, owner, now
        )

        def decide(state: RealmState) -> list[Change]:
            return [create, *issuer.opening(apply(state, create), name, now)]

        made = self.registry.transact(decide).topic(name)
        # The registry is what counts: whoever opens the log makes what is missing, should this be cut short.
        paths = self.paths.topic(name)
        EmbeddedTopic(paths.frames_root, partitions).close()
        for directory in (paths.pieces, paths.ledger, paths.cursors):
            files.make_directory(directory)
        return made

    def rotate(self, topic: str) -> Topic:
        """A new epoch for a topic, at once: new keys for its brokers and for all who may use it."""
        return self.rotate_many([topic])[0]

    def rotate_many(self, topics: Sequence[str]) -> list[Topic]:
        """All of them in one transaction, or none."""
        now, issuer = self.clock(), Issuer(self.paths)

        def decide(state: RealmState) -> list[Change]:
            return [change for topic in dict.fromkeys(topics) for change in issuer.rotation(state, topic, now)]

        after = self.registry.transact(decide)
        return [after.topic(topic) for topic in topics]

    def rotate_due(self, now_us: int | None = None, counts: Mapping[str, int] | None = None) -> dict[str, str]:
        """Rotates every topic whose key is too old, or has sealed too much by `counts` (messages in this epoch).

        The topics that were rotated, with the reason.
        """
        now, issuer, due = self.clock() if now_us is None else now_us, Issuer(self.paths), dict[str, str]()

        def decide(state: RealmState) -> list[Change]:
            for name, found in state.topics.items():
                why = found.topic.rotation_due(now, (counts or {}).get(name, 0))
                if why is not None:
                    due[name] = why
            return [change for name in due for change in issuer.rotation(state, name, now)]

        self.registry.transact(decide)
        return due

    def serve(self, topic: str, broker: str) -> RealmState:
        """Hands a broker the keys it needs to serve a topic."""
        issuer = Issuer(self.paths)
        return self.registry.transact(lambda state: issuer.service(state, topic, broker))

    def grant(
        self,
        topic: str,
        entity: str,
        rights: Iterable[Right] = BOTH,
        *,
        not_before_us: int = 0,
        until_us: int | None = None,
        template: str = EVERYTHING,
    ) -> RealmState:
        """Rights for an entity, for a time and for what a template admits, and the pair key it needs to use them."""
        issuer = Issuer(self.paths)
        change = Grant(topic, entity, tuple(rights), not_before_us, until_us, template)

        def decide(state: RealmState) -> list[Change]:
            after = apply(state, change)
            same = state.terms_of(topic, entity) == after.terms_of(topic, entity)
            return [*([] if same else [change]), *issuer.missing_pair_keys(after, topic, [entity])]

        return self.registry.transact(decide)

    def revoke(self, topic: str, entity: str, rights: Iterable[Right] = BOTH) -> RealmState:
        """Takes rights away; subscriptions stay and sleep until the right comes back."""
        change = Revoke(topic, entity, tuple(rights))

        def decide(state: RealmState) -> list[Change]:
            after = apply(state, change)
            return [] if state.terms_of(topic, entity) == after.terms_of(topic, entity) else [change]

        return self.registry.transact(decide)

    def subscribe(self, topic: str, subscriber: str, filter: str, id: str | None = None) -> Subscription:
        """A subscription; without an id it gets the subscriber's name and a number."""
        return self.subscribe_many(topic, [(subscriber, filter, id)])[0]

    def subscribe_many(self, topic: str, wanted: Sequence[tuple[str, str, str | None]]) -> list[Subscription]:
        """(subscriber, filter, id or None) each: all of them, or none."""
        issuer, made = Issuer(self.paths), list[Subscription]()

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
            return [*changes, *issuer.missing_pair_keys(state, topic, (s for s, _, _ in wanted))]

        self.registry.transact(decide)
        return made

    def remarks(self, topic: str, filter: str) -> list[str]:
        """What the author of a filter should know of it; FilterRejected when it does not fit the topic."""
        return vetting.remarks(self.state().topic(topic).schema, filter)

    def unsubscribe(self, *ids: str) -> int:
        """Ends subscriptions, all of them or none; the version from which on it counts."""
        return self.registry.apply_many([RemoveSubscription(id) for id in ids])

    # --- inside -------------------------------------------------------------------------------------

    def _keys_for(self, name: str) -> Identity:
        path = self.paths.entity_key(name)
        if path.exists():
            # Left behind by an enrolment that was cut short: never made public, so as good as new.
            return Identity.load(path, name)
        identity = Identity.generate(name)
        identity.save(path)
        return identity
