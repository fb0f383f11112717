"""Putting a service of a realm behind a control topic: a key center, a broker's desk.

A service that is run for good (`sealcast serve`) is advertised, to whom its restrictions let find it. One that is run a
turn at a time by whoever holds its keys is not: that process knows where it listens, from the service's own journal,
and asking every discovery node on the way would be asking for what is in its hands. Where it listens is the same.
"""

from __future__ import annotations

from typing import Final, Protocol

from sealcast.trust.budgets import Allowance, Budgets
from sealcast.trust.control import ControlPlane
from sealcast.trust.discovery import embedded
from sealcast.trust.discovery.advertisements import DEFAULT_LIFETIME_US, What
from sealcast.trust.discovery.embedded import RealmHandle
from sealcast.trust.discovery.restrictions import Restrictions
from sealcast.trust.identity import Identity
from sealcast.trust.registry import Registry
from sealcast.trust.service import SENDER_ALLOWANCE, Handler, Service

ANNOUNCE_EVERY_US: Final = DEFAULT_LIFETIME_US // 4


class RealmWriter(RealmHandle, Protocol):
    """What a service that decides asks of a realm; `deployment.Realm` is one."""

    @property
    def registry(self) -> Registry: ...


def listening(
    realm: RealmWriter,
    what: What,
    identity: Identity,
    handler: Handler,
    found_by: Restrictions | None,
    *,
    senders: Allowance = SENDER_ALLOWANCE,
) -> Service:
    """A service behind a control topic, ready to `start`; `found_by` is None for one that is not advertised."""

    def announce(topic: bytes, now_us: int) -> None:
        if found_by is not None:
            embedded.advertise_service(realm, what, identity, topic, restrictions=found_by)

    return Service(
        ControlPlane(realm.paths.root),
        embedded.party(realm, identity),
        realm.id,
        embedded.verifier(realm),
        handler,
        embedded.service_journal(realm, identity.name),
        announce=announce,
        senders=Budgets(senders),
        announce_every_us=None if found_by is None else ANNOUNCE_EVERY_US,
    )
