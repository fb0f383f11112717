"""sealcast explain: who can learn what under a topic's protection, with this topic's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.trust.realm import RealmState

app = typer.Typer(**talk.SETTINGS)


class Party(NamedTuple):
    who: str
    learns: list[str]
    cannot: list[str]


@app.command(epilog="Example: sealcast explain quotes")
def explain(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Say who can learn what of a topic's events, whom that trusts, and what is left."""
    state = talk.open_realm(realm).state()
    about = state.topic(topic)
    parties, left = _endpoint(state, topic)
    trusted = "the end-point broker: the process that runs the pipeline, with secrets/broker.key"
    if json:
        rows = [{"who": p.who, "learns": p.learns, "cannot": p.cannot} for p in parties]
        talk.emit({"topic": topic, "protection": about.protection, "trusted": trusted, "parties": rows, "left": left})
        return
    talk.say(f"topic {topic!r} is protected by `{about.protection}`, which trusts {trusted}.\n")
    for party in parties:
        talk.say(party.who)
        for text in party.learns:
            talk.say(f"    learns   {text}")
        for text in party.cannot:
            talk.say(f"    cannot   {text}")
        talk.say("")
    talk.say("What is left, knowingly")
    for text in left:
        talk.say(f"    {text}")


def _endpoint(state: RealmState, topic: str) -> tuple[list[Party], list[str]]:
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
    return parties, left
