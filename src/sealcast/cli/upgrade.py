"""sealcast upgrade: bring a realm of an earlier release to this one, and show that nothing was lost."""

from __future__ import annotations

from typing import Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.registry import brought_up

app = talk.Commands(no_args_is_help=False)


@app.command(epilog="Example: sealcast upgrade --dry-run")
def upgrade(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read everything, and say what would be done.")] = False,
) -> None:
    """Bring the realm to this release, and read all of it: nothing is lost, or it says what.

    The registry gets this release's schema and, where an older release left it unsigned, the administrator's signature
    (`sealcast registry migrate`). Then every change of the registry is verified again, and every log, ledger and piece
    on this machine is read from end to end. Frames, pieces and ledgers of earlier releases are read as they are: none
    of them is written again.

    Stop what runs on the realm, make a backup (`sealcast backup`), install the new release, and run this on the machine
    that has the realm, then on those of its brokers. Older releases cannot read what newer ones wrote.
    """
    from sealcast.log import whole

    here = talk.open_realm(afar=True)
    registry = here.registry
    before = registry.revision()
    signed = registry.is_signed()
    if not dry_run and here.site.here:
        before, _, signed = brought_up(here)
    state, found = here.state(), whole.verify(here.paths.root)
    document = {
        "realm": here.name,
        "dry_run": dry_run,
        "registry": {"from": before, "to": registry.revision(), "was_signed": signed, "version": state.version},
        "topics": len(state.topics),
        "entities": len(state.entities),
        "read": {"frames": found.frames, "records": found.records, "pieces": found.pieces},
    }
    now = registry.revision()
    talk.answer(
        document,
        f"realm {here.name!r}: schema {now}" + ("" if before == now else f", before it was {before}"),
        f"{talk.counted(state.version, 'change')} of the registry verified, {talk.counted(len(state.topics), 'topic')}",
        f"{talk.counted(found.frames, 'frame')}, {talk.counted(found.records, 'ledger record')} and "
        f"{talk.counted(found.pieces, 'piece')} read, all whole",
    )
