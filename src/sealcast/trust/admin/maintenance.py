"""What falls due by itself: certificates at half-life, tokens at half-life, keys that are old or have sealed enough.
Of layered topics: agreement keys that are missing or long over, and brokers that were revoked.

Whoever runs the realm does this now and then, as `sealcast maintain` or beside the pipeline. It does what can be done
with the secrets that are here: a machine that has a key center's renews its topics' tokens and keys, one that has the
authority's renews certificates, and one that has none does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, fields

from sealcast.errors import Unavailable
from sealcast.model.dataclass import dataclass
from sealcast.trust.admin import deletion, entities, overlays, subscriptions, topics
from sealcast.trust.admin.handle import Handle
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys.centers import CenterSecrets


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was due and has been done."""

    #: Whose certificates were renewed.
    certificates: tuple[str, ...]
    #: Topics whose keys were replaced, with the reason.
    rotated: Mapping[str, str]
    #: Subscribers who got new tokens, by topic.
    tokens: Mapping[str, int]
    #: Participants of layered topics whose agreement keys were announced, and whose old ones were forgotten, by topic.
    announced: Mapping[str, int] = field(default_factory=dict)
    forgotten: Mapping[str, int] = field(default_factory=dict)
    #: Brokers that were revoked and taken out of overlays, by topic.
    mended: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Topics whose brokers announced by which keys they are handed the next epoch's.
    receiving: tuple[str, ...] = ()
    #: Key centers that forgot what nobody needs any more of past epochs.
    forgot: tuple[str, ...] = ()
    #: Topics that were deleted, and of which something lay here.
    deleted: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(map(bool, (getattr(self, each.name) for each in fields(self))))


def maintain(realm: Handle, counts: Mapping[str, int] | None = None) -> Maintained:
    """Does what is due. `counts` are the messages that each topic's key has sealed in its present epoch.

    Certificates come first: no token outlives its holder's. Nothing is written when nothing is due.
    """
    renewed = entities.renew_due(realm) if realm.paths.authority.exists() else []
    here = [n for n, found in realm.state().topics.items() if realm.paths.center_key(found.topic.center).exists()]
    rotated = topics.rotate_due(realm, counts=counts, topics=here)
    tokens = {name: count for name in here if (count := subscriptions.renew_subscriptions(realm, name))}
    mended, announced = overlays.mend_overlays(realm), overlays.announce_layer_keys(realm)
    certified = tuple(entity.name for entity in renewed)
    receiving, forgotten = topics.announce_receiving_keys(realm), overlays.forget_layer_keys(realm)
    forgot, deleted = forget_epochs(realm), tuple(deletion.remove_deleted(realm))
    return Maintained(certified, rotated, tokens, announced, forgotten, mended, receiving, forgot, deleted)


def forget_epochs(realm: Handle) -> tuple[str, ...]:
    """Lets the key centers whose secrets are here forget past epochs that nobody needs, and topics that were deleted;
    those that did."""
    state, now = realm.state(), realm.clock()
    topics, seen = [found.topic for found in state.topics.values()], realm.registry.time_of(state.version)
    deleted, forgot = list(state.deleted.values()), list[str]()
    for center in state.holders(Role.KEY_CENTER):
        path = realm.paths.center_key(center.name)
        # Under a lock that is not at hand: whoever runs the center lets it forget.
        with suppress(Unavailable):
            forgot += [center.name] * (path.exists() and CenterSecrets.forget(path, topics, now, seen, deleted))
    return tuple(forgot)
