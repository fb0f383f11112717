"""Consumer groups of callers elsewhere: the gateway keeps who has which share, and what was acknowledged.

A caller's groups are its own. The gateway stores what the caller signed, and takes an acknowledgement only from the
member that has the share (`log.groups`). Members of this machine and from elsewhere may be in one group. Where the
registry is on a server, so is the group, and other gateways serve it as well (`trust.shared_groups`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from sealcast.errors import FrameRejected, Misuse, NotFound, Rejected
from sealcast.gateway import access
from sealcast.gateway.asked import ApiCall, CborAnswer, NoAnswer
from sealcast.gateway.problems import forbidden
from sealcast.log import group_statement
from sealcast.log.group_statement import LABEL, GroupName
from sealcast.log.groups import KeptGroup, ShareLost, SignedAck
from sealcast.primitives.sign import VerifyKey

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

#: Groups of one caller on one topic.
MAX_GROUPS = 64
T = TypeVar("T")


async def begin(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Makes a group, unless there is one."""
    ack, caller = _ack(hub, asked), asked.caller.name

    def work(group: KeptGroup) -> bool:
        own = [name for reader, name in hub.realm.site.local.groups(asked.path["topic"]).names() if reader == caller]
        if group.name not in own and len(own) >= MAX_GROUPS:
            raise Misuse(f"a reader has at most {MAX_GROUPS} groups on a topic")
        return group.begin(ack)

    return CborAnswer({"made": await _with(hub, asked, work)})


async def turn(hub: Hub, asked: ApiCall) -> CborAnswer:
    """A member is there; which shares are its own."""
    body = asked.body

    def work(group: KeptGroup) -> dict[str, object]:
        known = dict(body["known"])
        found = group.turn(body["member"], body["about"], known, body["done"])
        return {
            "mine": sorted(map(list, found.mine.items())),
            "new": [list(each) for each in found.new],
            "give": list(found.give),
            "low": [[broker, first, at.entry, at.piece, at.rank] for broker, first, at in found.low],
            "members": found.members,
        }

    return CborAnswer(await _with(hub, asked, work))


async def acknowledge(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Moves the places of shares that the member has; those that it has not any more."""
    ack = _ack(hub, asked)

    def work(group: KeptGroup) -> list[int]:
        try:
            group.acknowledge(asked.body["member"], ack)
        except ShareLost as error:
            return list(error.numbers)
        return []

    return CborAnswer({"lost": await _with(hub, asked, work)})


async def leave(hub: Hub, asked: ApiCall) -> NoAnswer:
    """Frees a member's shares."""
    await _with(hub, asked, lambda group: group.leave(asked.path["member"]))
    return NoAnswer()


async def _with(hub: Hub, asked: ApiCall, work: Callable[[KeptGroup], T]) -> T:
    """Does something with the group that is asked for, in a worker."""
    _vet(hub, asked)

    def done() -> T:
        groups = hub.realm.site.local.groups(asked.path["topic"])
        with groups.of(asked.caller.name, asked.path["name"], here=False) as group:
            return work(group)

    return await hub.workers.run(done)


def _vet(hub: Hub, asked: ApiCall) -> None:
    """A group is where the realm is, and its reader's own."""
    access.be_realms(home=hub.home)
    state, topic = hub.newest.seen.state, asked.path["topic"]
    about = state.topic(topic)
    if about.protection.peers:
        raise NotFound(f"topic {topic!r} has no brokers: its readers keep their groups where they receive")
    if not access.reads(state, asked.caller, topic):
        raise forbidden(f"{asked.caller.name!r} is no reader of topic {topic!r}")


def _ack(hub: Hub, asked: ApiCall) -> SignedAck:
    """An acknowledgement of the caller's, verified to be its own and about this group."""
    _vet(hub, asked)
    state, body = hub.newest.seen.state, asked.body
    about = GroupName(hub.realm.id, state.topic(asked.path["topic"]).id, asked.caller.name, asked.path["name"])
    had = {number: data for number, _, data in body["shares"]}
    try:
        said = group_statement.parse(body["statement"])
    except FrameRejected as error:
        raise Misuse(f"the statement is none: {error.message}") from None
    if said.about != about or {share.number for share in said.shares} != had.keys():
        raise Misuse("the statement is about another group, or about other shares")
    if not VerifyKey(state.entity(asked.caller.name).verify_key).verify(LABEL + body["statement"], body["signature"]):
        raise Rejected("the statement is not signed by its reader")
    fences = {number: fence for number, fence, _ in body["shares"]}
    return SignedAck(body["statement"], body["signature"], body["events"], had, fences)
