"""sealcast group: consumer groups, their members, and the ledger of what was acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sealcast.cli import talk
from sealcast.errors import Misuse

if TYPE_CHECKING:
    from sealcast.log.group_rows import AckRecord
    from sealcast.log.groups import KeptGroup

app = talk.group("Consumer groups: processes that share a subscriber's events.")

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Name = Annotated[str, typer.Argument(metavar="GROUP")]


@app.command("list", epilog="Example: sealcast group list quotes")
def list_(topic: Topic) -> None:
    """List the groups of a topic: whose each is, how many members and acknowledgements it has."""
    found = [_described(reader, group) for reader, group in _all(topic)]
    rows = [(each["group"], each["reader"], len(each["members"]), each["acknowledgements"]) for each in found]
    columns = ["group", "reader", "members", "acknowledgements"]
    talk.answer_table({"groups": found}, columns, rows, f"topic {topic!r} has no groups: sub --group NAME makes one")


@app.command(epilog="Example: sealcast group show quotes workers --as alice")
def show(topic: Topic, name: Name, as_: talk.AsOption) -> None:
    """Show the members of a group, and how many of its shares each has."""
    group = _one(topic, as_, name)
    document = _described(as_, group)
    rows = [(each["member"], each["process"], each["shares"]) for each in document["members"]]
    talk.answer_table(document, ["member", "process", "shares"], rows, f"nobody takes part in group {name!r} now")


@app.command(epilog="Example: sealcast group acks quotes workers --as alice --max 10")
def acks(
    topic: Topic,
    name: Name,
    as_: talk.AsOption,
    limit: Annotated[int, typer.Option("--max", metavar="N", min=1, help="At most so many, the newest.")] = 100,
) -> None:
    """Show the ledger of acknowledgements: which member acknowledged which events, when.

    Every event is in it once. It keeps the newest 100,000 acknowledgements.
    """
    found = [_told(each) for each in _one(topic, as_, name).acks() if _events(each)][-limit:]
    rows = [(each["at"], each["member"], each["events"], ", ".join(each["publishers"])) for each in found]
    talk.answer_table({"acks": found}, ["at", "member", "events", "publishers"], rows, "nothing was acknowledged yet")


@app.command(epilog="Example: sealcast group remove quotes workers --as alice --yes")
def remove(
    topic: Topic,
    name: Name,
    as_: talk.AsOption,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget a group and its place. Its events stay, and a new group of the name begins at the reader's cursor."""
    group = _one(topic, as_, name)
    if not yes:
        talk.confirm(f"The place and the acknowledgements of group {name!r} are forgotten, for good.")
    group.remove()
    talk.answer({"group": name, "removed": True}, f"group {name!r} of {as_!r} is gone")


def _all(topic: str) -> list[tuple[str, KeptGroup]]:
    groups = talk.open_realm().site.local.groups(topic)
    return [(reader, groups.of(reader, name)) for reader, name in groups.names()]


def _one(topic: str, reader: str, name: str) -> KeptGroup:
    groups = {(who, group.name): group for who, group in _all(topic)}
    if (reader, name) not in groups:
        own = ", ".join(known for who, known in groups if who == reader)
        raise Misuse(
            f"{reader!r} has no group {name!r} on topic {topic!r}",
            hint=f"its groups are {own}" if own else f"make one: sealcast sub {topic} --as {reader} --group {name}",
        )
    return groups[reader, name]


def _described(reader: str, group: KeptGroup) -> dict[str, Any]:
    with group:
        members = [{"member": m.id, "process": m.about, "shares": m.shares} for m in group.members()]
        count = sum(1 for each in group.acks() if _events(each))
    return {"group": group.name, "reader": reader, "members": members, "acknowledgements": count}


def _told(record: AckRecord) -> dict[str, Any]:
    from sealcast.model.moments import moment
    from sealcast.model.schema import value_to_json

    counted = _events(record)
    return {
        "at": value_to_json(moment(record.at_us)),
        "member": record.member,
        "events": sum(counted.values()),
        "publishers": sorted(counted),
    }


def _events(record: AckRecord) -> dict[str, int]:
    """How many events of each publisher it acknowledges."""
    import json

    return {name: sum(sum(numbers[1::2]) for _, _, _, numbers in boots) for name, _, boots in json.loads(record.events)}
