"""`Realm`: a realm as one handle, with everything that its administrator does.

The handle reaches all that brokers and entities reach (`trust.handles`), and the authority and the key centers. Each
act is a function in `trust.admin`; the table below gives it its name on the handle. Whoever is enrolled gets a
certificate, and whoever gets a right gets the keys that go with it, in the same transaction. The secrets that this
needs are read when an act needs them and not before, so that opening a realm reads public things only.

Only administrators' tools, tests and the laboratory import this module: a broker's code holds a `BrokerRealm`, a
client's an `EntityRealm`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from sealcast.trust.admin import (
    authorities,
    carrying,
    deletion,
    entities,
    founding,
    maintenance,
    newcomers,
    overlays,
    subscriptions,
    topics,
)
from sealcast.trust.admin.handle import Handle
from sealcast.trust.admin.topics import BOTH as BOTH
from sealcast.trust.registry import now_us as now_us


class Realm(Handle):
    """One deployment: its registry, its topics, where its files lie, and what is done about them."""

    @classmethod
    def create(
        cls,
        directory: str | Path,
        name: str | None = None,
        *,
        registry: str | None = None,
        clock: Callable[[], int] = now_us,
        at_hand: bool = True,
    ) -> Self:
        """Makes a realm in a directory that is empty or does not exist yet, with its registry there or at a URL.

        With it come its authority, a key center, a broker and two discovery nodes. Without `at_hand`, clients never use
        the keys of centers and brokers, also where these are on the same machine: `sealcast serve` answers them.
        """
        return cls(founding.found(directory, name, registry, clock, at_hand=at_hand), clock=clock)

    # --- who is here
    enrol = entities.enrol
    enrol_many = entities.enrol_many
    enrol_public = newcomers.enrol_public
    add_broker = entities.add_broker
    add_center = entities.add_center
    add_discovery_node = entities.add_discovery_node
    add_gateway = entities.add_gateway
    renew = entities.renew
    renew_due = entities.renew_due
    revoke_entity = entities.revoke_entity
    revoke_entities = entities.revoke_entities
    adopt_registry = authorities.adopt_registry
    appoint_administrator = authorities.appoint_administrator
    succeed_authority = authorities.succeed_authority
    replace_authority = authorities.replace_authority

    # --- topics, their keys, and who may use them
    create_topic = topics.create_topic
    alter_topic = topics.alter_topic
    delete_topic = deletion.delete_topic
    serve = topics.serve
    rotate = topics.rotate
    rotate_many = topics.rotate_many
    rotate_due = topics.rotate_due
    grant = topics.grant
    revoke = topics.revoke

    # --- servers that keep logs
    add_carrier = carrying.add_carrier
    move_topic = carrying.move_topic

    # --- brokers of topics with an overlay
    place_node = overlays.place_node
    remove_node = overlays.remove_node
    announce_layer_keys = overlays.announce_layer_keys
    forget_layer_keys = overlays.forget_layer_keys
    mend_overlays = overlays.mend_overlays

    # --- subscriptions and tokens
    subscribe = subscriptions.subscribe
    subscribe_many = subscriptions.subscribe_many
    renew_subscriptions = subscriptions.renew_subscriptions
    unsubscribe = subscriptions.unsubscribe
    token = subscriptions.token
    remarks = subscriptions.remarks

    # --- what falls due by itself
    maintain = maintenance.maintain
