"""Servers that keep logs for the realm, and which topics they keep."""

from __future__ import annotations

from typing import Final

from sealcast.errors import Misuse
from sealcast.log.carriers import CarrierAddress, checked_name
from sealcast.trust.certificates.roles import Role
from sealcast.trust.realm.changes import AddCarrier, CarryJournal, CarryTopic, LeaveCarrier, ReturnTopic
from sealcast.trust.realm.rules.draft import Draft
from sealcast.trust.realm.rules.names import check_name
from sealcast.trust.realm.state import Carried, CarriedName

MAX_CARRIERS: Final = 64
#: The directory of a realm and not a carrier: no carrier has that name.
EMBEDDED: Final = "embedded"


def add_carrier(draft: Draft, change: AddCarrier) -> None:
    """One that is there already is reached at another address from now on; it is the same carrier, of the same kind."""
    check_name("carrier", change.name)
    if change.name == EMBEDDED:
        raise Misuse(f"{EMBEDDED!r} is the realm's own directory: choose another name")
    address, before = CarrierAddress.parse(change.address), draft.carriers.read.get(change.name)
    if before is not None and CarrierAddress.parse(before).kind != address.kind:
        raise Misuse(f"carrier {change.name!r} is of another kind: {before}", hint="add the new one by another name")
    if before is None and len(draft.carriers.read) >= MAX_CARRIERS:
        raise Misuse(f"a realm has at most {MAX_CARRIERS} carriers")
    draft.carriers.write()[change.name] = str(address)


def carry_topic(draft: Draft, change: CarryTopic) -> None:
    broker, topic = draft.holder(change.broker, Role.BROKER).name, draft.topic(change.topic)
    if change.carrier not in draft.carriers.read:
        draft.state().carrier(change.carrier)  # says what is wrong
    if topic.protection.peers:
        raise Misuse(f"no broker has frames of topic {topic.name!r}: publishers carry it themselves")
    if not len(change.positions) == len(change.numbers) == topic.partitions:
        raise Misuse(f"topic {topic.name!r} has {topic.partitions} partitions, and each begins somewhere")
    place = Carried(change.carrier, checked_name(change.name), change.positions, change.numbers)
    for (other, holder), taken in draft.carried.read.items():
        if (other, holder) != (topic.name, broker) and taken[:2] == place[:2]:
            raise Misuse(f"{change.name!r} on carrier {change.carrier!r} has the frames of topic {other!r} already")
    draft.carried.write()[topic.name, broker] = place


def carry_journal(draft: Draft, change: CarryJournal) -> None:
    """Only where its frames are already: who may append to a broker's frames is told apart from who reads its ledger,
    by names that begin with the same."""
    broker, topic = draft.holder(change.broker, Role.BROKER).name, draft.topic(change.topic)
    if change.carrier not in draft.carriers.read:
        draft.state().carrier(change.carrier)  # says what is wrong
    if (topic.name, broker) not in draft.carried.read:
        raise Misuse(f"the frames of topic {topic.name!r} are in the broker's directory", hint="move them first")
    place = CarriedName(change.carrier, checked_name(change.name))
    for (other, holder), taken in draft.journals.read.items():
        if (other, holder) != (topic.name, broker) and taken == place:
            raise Misuse(f"{change.name!r} on carrier {change.carrier!r} has the ledger of topic {other!r} already")
    draft.journals.write()[topic.name, broker] = place


def leave_carrier(draft: Draft, change: LeaveCarrier) -> None:
    """Of a broker that was revoked, too. Said twice, it counts from the first time on."""
    draft.leaving.write().setdefault(_carried_at(draft, change), draft.version + 1)


def return_topic(draft: Draft, change: ReturnTopic) -> None:
    """What left a carrier is in the directory, and so is what a carrier had of a realm that was restored. Of a broker
    that was revoked, too."""
    at = _carried_at(draft, change)
    del draft.carried.write()[at]
    draft.journals.write().pop(at, None)
    draft.leaving.write().pop(at, None)
    draft.departures += 1


def _carried_at(draft: Draft, change: LeaveCarrier | ReturnTopic) -> tuple[str, str]:
    at = draft.topic(change.topic).name, draft.entity(change.broker).name
    if at not in draft.carried.read:
        raise Misuse(f"topic {change.topic!r} at broker {change.broker!r} is on no carrier")
    return at
