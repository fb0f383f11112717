"""sealcast forget: make events unreadable for good by destroying what opens them, and prove it by an attack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.deletion import left_as_json, left_lines
from sealcast.cli.times import microseconds

if TYPE_CHECKING:
    from sealcast.lab.forgetting import Forgetting

app = talk.Commands()


@app.command(epilog="Example: sealcast forget quotes --publisher nyse --dry-run")
def forget(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    publisher: Annotated[
        str, typer.Option(metavar="ENTITY", help="Forget the events of this publisher [default: of all].")
    ] = "",
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Forget what was committed then or later.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Forget what was committed before this time.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be forgotten, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. What is forgotten does not come back.")] = False,
) -> None:
    """Forget events: all of a topic, those of one publisher, or those of a span of time. The topic goes on.

    Their sealed bytes are removed. A new epoch begins, everything that is to stay is sealed again under its keys, and
    the keys of earlier epochs are destroyed at key centers and brokers. Then every key that was on this machine before
    tries everything that lies here now; the command exits with 1 if one of them opens anything.

    One publisher's events are taken out exactly. A span of time is rounded to whole batches, and frames are removed up
    to the newest. Readers who had not read them are told how many they missed. What cannot be taken back is named: what
    readers have copied, backups, and keys that brokers keep for good unless the topic says `--past-keys forgotten`.

    On layered topics nobody can seal anything again: events are taken out at every broker on their way, and what stays
    is left as it is. On attribute topics nobody knows where all copies are, and the command refuses.

    Stop the pipeline first, and let it take what waits (`sealcast run --once`).
    """
    from sealcast.lab.forgetting import Forgotten, preview
    from sealcast.lab.forgetting import forget as do_forget

    here = talk.open_realm()
    from_us = 0 if start is None else microseconds(start, "--from")
    wanted = Forgotten(topic, publisher, from_us, None if until is None else microseconds(until, "--until"))
    if dry_run or not yes:
        planned = preview(here, wanted)
        if dry_run:
            talk.answer(_document(planned) | {"dry_run": True}, *_lines(planned, "would be"))
            return
        talk.confirm(*_lines(planned, "will be"))
    done = do_forget(here, wanted)
    talk.answer(_document(done), *_lines(done, "were"), *_attack(done))
    if not done.over:
        talk.warn("it is not over: something opens that should not, or could not be sealed again")
        raise typer.Exit(1)


def _document(found: Forgetting) -> dict[str, object]:
    return {
        "topic": found.wanted.topic,
        "publisher": found.wanted.publisher or None,
        "batches": found.batches,
        "deliveries": found.deliveries,
        "resealed_pieces": found.resealed,
        "kept_pieces": found.kept,
        "removed_frames": found.frames,
        "first_epoch_kept": found.epoch,
        "version": found.version,
        "attack": {name: reads._asdict() for name, reads in found.attack.items()},
        "over": found.over if found.attack else None,
        "left": left_as_json(found.left),
    }


def _lines(found: Forgetting, are: str) -> list[str]:
    of = f" of {found.wanted.publisher!r}" if found.wanted.publisher else ""
    lines = [
        f"topic {found.wanted.topic!r}: deliveries{of} that {are} forgotten: {found.deliveries:,}, in "
        f"{found.batches:,} batches",
        f"keys of epochs before {found.epoch} {are} destroyed, and {talk.counted(found.frames, 'frame')} {are} removed",
    ]
    if found.resealed:
        lines.append(f"{talk.counted(found.resealed, 'piece')} of what stays {are} sealed again")
    if found.kept:
        lines.append(f"{talk.counted(found.kept, 'piece')} could not be sealed again, so keys {are} kept")
    return [*lines, *left_lines(found.left)]


def _attack(done: Forgetting) -> list[str]:
    opened = {name: reads.opened + reads.frames + reads.queued for name, reads in done.attack.items()}
    bad = {name: count for name, count in opened.items() if count}
    if bad:
        return [f"attack: keys of {name!r} from before still open {count:,} events" for name, count in bad.items()]
    tried = f"of {', '.join(opened)}" if opened else "at all (none is here)"
    stays = done.ids is not None and not done.wanted.is_everything
    return [f"attack: no key {tried} from before opens anything {'of it ' if stays else ''}that lies here"]
