"""sealcast explain: who can learn what under a topic's protection, with this topic's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.trust.realm.machine import RealmState

app = typer.Typer(**talk.SETTINGS)

#: Stands for whoever publishes; no entity has such a name.
_ON_TOP: Final = "(publisher)"
#: Parties that are told one by one to a reader; a tree may have hundreds of brokers.
_MOST_SHOWN: Final = 24


class Party(NamedTuple):
    who: str
    learns: list[str]
    cannot: list[str]
    #: Of a coalition: who that would be in this topic.
    here: str = ""


class Answer(NamedTuple):
    """What a protection trusts whom with, and what is left."""

    trusted: str
    parties: list[Party]
    left: list[str]
    coalitions: Sequence[Party] = ()


@app.command(epilog="Example: sealcast explain quotes")
def explain(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Say who can learn what of a topic's events, whom that trusts, and what is left."""
    state = talk.open_realm(realm).state()
    about = state.topic(topic)
    told = (_layered if about.protection.overlay else _endpoint)(state, topic)
    if json:
        talk.emit({"topic": topic, "protection": about.protection.name, **_document(told)})
        return
    talk.say(f"topic {topic!r} is protected by `{about.protection}`, which trusts {told.trusted}.\n")
    _say(told.parties[:_MOST_SHOWN])
    if len(told.parties) > _MOST_SHOWN:
        talk.say(f"and {len(told.parties) - _MOST_SHOWN} more parties: --json names them all\n")
    if told.coalitions:
        talk.say("Coalitions: who pools keys and what it sees\n")
        _say(told.coalitions)
    talk.say("What is left, knowingly")
    for text in told.left:
        talk.say(f"    {text}")


def _document(told: Answer) -> dict[str, object]:
    parties = [{"who": p.who, "learns": p.learns, "cannot": p.cannot} for p in told.parties]
    found: dict[str, object] = {"trusted": told.trusted, "parties": parties}
    if told.coalitions:
        found["coalitions"] = [p._asdict() for p in told.coalitions]
    return found | {"left": told.left}


def _say(parties: Sequence[Party]) -> None:
    for party in parties:
        talk.say(party.who)
        if party.here:
            talk.say(f"    here     {party.here}")
        for text in party.learns:
            talk.say(f"    learns   {text}")
        for text in party.cannot:
            talk.say(f"    cannot   {text}")
        talk.say("")


def _layered(state: RealmState, topic: str) -> Answer:
    from sealcast.protections.layered.parties import Standing
    from sealcast.protections.layered.standing import layering_of
    from sealcast.protections.layered.tree import Tree

    about, overlay = state.topic(topic), state.overlay(topic)
    layering = layering_of(state, topic)
    # Trees of publishers differ in who stands on top; a publisher that subscribes is in the others' trees.
    publishers = state.publishers_of(topic)
    tree = Tree(_ON_TOP, overlay.parents_for(_ON_TOP), layering.layers)
    standing = Standing(tree, overlay.parents.keys(), overlay.places.keys(), padded=layering.padded)
    publisher, *others = (Party(*told) for told in standing.parties())
    parties = [
        publisher._replace(who=f"a publisher ({len(publishers)} announced for epoch {about.epoch})"),
        *others,
        Party(
            "whoever reads the disk, backups or the network, without secrets/ and entities/",
            ["what an eavesdropper on every link learns", "the registry: names, public keys, rights, who stands where"],
            ["read filters, labels or payloads", "alter anything unnoticed: frames are signed, ledgers are chained"],
        ),
    ]
    trusted = (
        f"nobody with filters or events ({layering.layers} layers in {layering.group}, {len(overlay.parents)} nodes). "
        "Brokers are trusted to route honestly, and not to form one of the coalitions below"
    )
    live = [e.name for e in state.entities.values() if not e.revoked]
    able = sum(state.may_publish(topic, name) for name in live if name not in overlay.parents)
    left = [
        f"{able} may publish, and subscribers send their filters into the tree of each that does: any one of them is "
        "the publisher of the coalitions above, so grant that right to few",
        "a broker that knows from elsewhere what is in events learns what its rows are, as with a publisher's help",
        "one process that runs several nodes has the keys of all of them: run each with its own `sealcast run --node`, "
        "on a machine of its own, or `all brokers together` above is who runs it",
        "encryption is deterministic: equality and frequency show after a layer came off, until the epoch ends",
        "who can guess how often labels come can guess which row is which; an epoch does not change frequencies",
        "events have one id and one body everywhere, so that who watches several links can follow them",
        "what a broker hands on lies in one directory for all below it: who reads there sees which events go "
        "to the others, and how many tokens each has",
        "that something opens does not say who wrote it: subscribers verify the publisher's signature",
        "powers take a time that depends on the key: who can time single ones is on the broker's machine",
        "what a subscriber was sent it keeps; one whose right ended gets nothing from the next batch on",
        "whoever runs the authority can enrol brokers and subscribers of its own, and place them",
    ]
    return Answer(trusted, parties, left, [Party(*told) for told in standing.coalitions()])


def _endpoint(state: RealmState, topic: str) -> Answer:
    found = state.topic_state(topic)
    live = [e.name for e in state.entities.values() if not e.revoked]
    publishers = sum(state.may_publish(topic, name) for name in live)
    readers = sum(state.may_subscribe(topic, name) for name in live)
    authorised = len(list(state.authorised_slots(topic)))
    parties = [
        Party(
            f"a publisher ({publishers} may publish)",
            ["its own events"],
            ["read other publishers' events", "publish in another's name: every frame is signed and checked"],
        ),
        Party(
            "the broker",
            ["every event: attributes and payload", "every filter, and which events it matches"],
            ["forge or alter an event: subscribers verify the publisher's signature themselves"],
        ),
        Party(
            f"a subscriber ({len(found.slots)} ever subscribed, {authorised} of them may read now)",
            [
                "events that match one of its own filters, while it may read",
                "how many events shared a frame with one of its own, and salted hashes of them",
            ],
            ["open any other event, also together with other subscribers' keys"],
        ),
        Party(
            f"a member without a subscription ({max(0, readers - authorised)} could subscribe)",
            ["what the disk shows, see below"],
            ["open any event: nothing is sealed for it"],
        ),
        Party(
            "whoever reads the disk, backups or the network, without secrets/ and entities/",
            [
                "publishers' names, times, sizes, counts, and which subscriber gets which event (by number)",
                "the registry: names, public keys, rights, and filters",
            ],
            ["read attributes or payloads", "alter anything unnoticed: frames are signed, the ledger is chained"],
        ),
    ]
    left = [
        "traffic analysis: sizes, times and who gets what are visible on the disk",
        "what a subscriber was sent before a revocation, it keeps; a revocation counts from the next batch on",
        "whoever has secrets/broker.key and what unlocks it is the broker; likewise entities/NAME.key and NAME",
    ]
    return Answer("the end-point broker: the process that runs the pipeline, with secrets/broker.key", parties, left)
