"""Putting a service of a realm behind a control topic: a key center, a broker's desk.

A service that is run for good (`sealcast serve`) is advertised, to whom its restrictions let find it. One that is run a
turn at a time by whoever holds its keys is not: that process knows where it listens, from the service's own journal,
and asking every discovery node on the way would be asking for what is in its hands. Where it listens is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from sealcast.control.budgets import Allowance, Budgets
from sealcast.control.discovery import embedded
from sealcast.control.discovery.advertisements import DEFAULT_LIFETIME_US, What
from sealcast.control.discovery.restrictions import Restrictions
from sealcast.control.service import SENDER_ALLOWANCE, Handler, Service
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.state import RealmState
from sealcast.trust.statements import Author

ANNOUNCE_EVERY_US: Final = DEFAULT_LIFETIME_US // 4


#: Opens a service whose keys are on this machine, so that whoever asks it takes its turns; None for one elsewhere.
AtHand = Callable[[What, str], Service | None]


class Deciding(Protocol):
    """What a service decides about a request, whatever else it says of it: what is to change."""

    @property
    def changes(self) -> tuple[Change, ...]: ...


D = TypeVar("D", bound=Deciding)


def settle(realm: OpenRealm, decide: Callable[[RealmState], D], author: Author) -> D:
    """What the author decides on the newest state. What changes something is decided again inside the transaction, on a
    state that nobody changes in between; most requests change nothing, and only read."""
    made = [decide(realm.state())]

    def changes(state: RealmState) -> tuple[Change, ...]:
        made[0] = decide(state)
        return made[0].changes

    if made[0].changes:
        realm.registry.transact(changes, author)
    return made[0]


def listening(
    realm: OpenRealm,
    what: What,
    identity: Identity,
    handler: Handler,
    found_by: Restrictions | None,
    *,
    senders: Allowance = SENDER_ALLOWANCE,
    on_close: Callable[[], None] = lambda: None,
) -> Service:
    """A service behind a control topic, ready to `start`; `found_by` is None for one that is not advertised."""

    def announce(topic: bytes, now_us: int) -> None:
        if found_by is not None:
            embedded.advertise_service(realm, what, identity, topic, restrictions=found_by)

    return Service(
        realm.site.of(identity.name).control(),
        embedded.party(realm, identity),
        realm.id,
        embedded.verifier(realm),
        handler,
        embedded.service_journal(realm, identity.name),
        announce=announce,
        senders=Budgets(senders),
        announce_every_us=None if found_by is None else ANNOUNCE_EVERY_US,
        on_close=on_close,
    )
