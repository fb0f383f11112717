"""sealcast topic delete: end a topic for good, and say what is gone and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.times import moment

if TYPE_CHECKING:
    from sealcast.trust.admin.deletion import Deletion, Lasting


def delete(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. A deleted topic does not come back.")] = False,
) -> None:
    """Delete a topic: its events, its subscriptions, and the keys that are kept of it on this machine.

    Nobody can publish on it or read it from then on, and its name is not given again. Brokers on other machines remove
    their part when they next do what is due. The registry remembers that there was such a topic, and who could use it.

    What cannot be taken back is named: what readers have copied, what backups hold, and keys that the registry hands to
    brokers and entities for good (`topic create --past-keys forgotten` avoids those of brokers). A pipeline that runs
    the topic has to be stopped first.
    """
    from sealcast.trust.admin.deletion import delete_topic, planned

    here = talk.open_realm()
    would = planned(here, name)
    if dry_run:
        talk.answer(_document(would) | {"dry_run": True}, *_lines(would, "would be"))
        return
    if not yes:
        talk.confirm(*_lines(would, "will be"))
    done = delete_topic(here, name)
    talk.answer(_document(done), *_lines(done, "was"))


def _document(done: Deletion) -> dict[str, object]:
    removed = done.removed
    return {
        "topic": done.topic,
        "id": done.id.hex(),
        "version": done.version,
        "subscriptions_ended": done.subscriptions,
        "removed": {"files": removed.files, "bytes": removed.bytes, "key_files": removed.keys},
        "left": left_as_json(done.left),
    }


def left_as_json(left: Lasting) -> dict[str, object]:
    return {
        "brokers_with_keys": list(left.brokers),
        "entities_with_keys": left.entities,
        "brokers_elsewhere": list(left.elsewhere),
        "mqtt_logs_of": list(left.queued),
        "shared_on_carriers": list(left.shared),
        "center": left.center,
        "center_is_here": left.center_here,
        "center_gives_keys_until": None if left.center_until_us is None else moment(left.center_until_us),
    }


def _lines(done: Deletion, is_: str) -> list[str]:
    removed = done.removed
    many = "were" if is_ == "was" else is_
    at = "" if done.version is None else f" (version {done.version})"
    return [
        f"topic {done.topic!r} {is_} deleted{at}, with {talk.counted(done.subscriptions, 'subscription')}",
        f"{talk.counted(removed.files, 'file')} of {removed.bytes:,} bytes {many} removed here, "
        f"{talk.counted(removed.keys, 'key file')} among them",
        *left_lines(done.left),
    ]


def left_lines(left: Lasting) -> list[str]:
    """What nobody here can take back, a line each."""
    lines = ["left: whatever readers have opened and copied, backups, and blocks of the disk until they are reused"]
    if left.brokers:
        lines.append(f"left: copies of its files open with the keys of {', '.join(left.brokers)}, for good")
    if left.entities:
        lines.append(f"left: entities with keys ({left.entities}) can open copies of what they could read or publish")
    if left.elsewhere:
        lines.append(f"left: {', '.join(left.elsewhere)} on other machines, until `sealcast maintain` or `run` there")
    if left.queued:
        logs = f"what waits in MQTT logs of {', '.join(left.queued)}"
        lines.append(f"left: {logs}, until newer messages take its place (`sealcast mqtt broker --keep-mib`)")
    if left.shared:
        topics = ", ".join(left.shared)
        lines.append(f"left: frames in {topics}, which had records of others: remove them by the carrier's own means")
    if not left.center_here:
        lines.append(f"left: the keys that center {left.center!r} makes, until it runs `sealcast maintain`")
    elif left.center_until_us:
        until = moment(left.center_until_us)
        lines.append(f"left: center {left.center!r} can make its keys until {until}; `sealcast maintain` ends that")
    return lines
