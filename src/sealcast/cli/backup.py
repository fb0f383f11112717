"""sealcast backup and restore: one moment of a realm in one sealed file, and a realm of it again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sealcast.cli import talk
from sealcast.cli.times import moment

app = talk.Commands()
restore_app = talk.Commands(shared=talk.JSON_ONLY)


class LockedBy(StrEnum):
    """What a backup can be locked by, where it is not sealed to a key for backups."""

    PASSPHRASE = "passphrase"
    KEY = "key"


@app.command(epilog="Example: sealcast backup ../market.backup")
def backup(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A new file, outside of the realm.")] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE.pub", help="Seal it to this public key [default: your unlock key].")
    ] = None,
    by: Annotated[LockedBy | None, typer.Option(help="Lock it with a passphrase, or with your unlock key.")] = None,
    new_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Make a pair of keys for backups: FILE and FILE.pub.")
    ] = None,
) -> None:
    """Back up the realm: one consistent moment of it, sealed, while everything runs on.

    All files of the realm are in it, its registry, also when that is on a PostgreSQL server, and its topics, also those
    on Kafka or NATS. Left out is only what is made again by itself: Spark's checkpoints, compiled tables, snapshots.

    Private keys are in it as they lie in the realm, sealed under your unlock key, which is not part of the realm: keep
    that elsewhere (`sealcast doctor` says where it is).

    With --to, whoever has the file of the other half can restore it, and nobody else: make the pair once
    (--new-key FILE), and keep FILE where no backup is. The passphrase is read from the file that
    SEALCAST_PASSPHRASE_FILE names.
    """
    from sealcast.trust.backups import envelope
    from sealcast.trust.backups.making import back_up

    if (file is None) == (new_key is None):
        raise typer.BadParameter("name the file of the backup, or --new-key FILE")
    if new_key is not None:
        public = envelope.make_key(new_key)
        talk.answer({"key": str(new_key), "public": str(public)}, f"made {new_key}; seal backups to {public}")
        return
    assert file is not None
    here = talk.open_realm()
    made = back_up(here, file, None if to is None else envelope.read_public(to), by)
    document: dict[str, object] = {
        "file": str(made.path),
        "files": made.files,
        "bytes": made.bytes,
        "version": made.head.version,
    }
    document |= {"made": moment(made.head.made_us), "lock": made.head.lock["by"]}
    size = made.path.stat().st_size
    talk.answer(
        document, f"{made.path}: {talk.counted(made.files, 'file')}, {size:,} bytes, registry {made.head.version}"
    )


@restore_app.command(epilog="Example: sealcast restore market.backup market")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `sealcast backup` wrote.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.")],
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The private key that the backup was sealed to.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Put the registry on PostgreSQL: postgresql://USER@HOST/DATABASE."),
    ] = None,
) -> None:
    """Make a realm of a backup, and verify all of it: the registry, every log, every ledger, every piece.

    The realm goes on from the moment of the backup. Brokers seal under new keys from their next run on, so that no
    position is used twice under one key. What was published and decided since is lost. Whoever has seen more of it, on
    another machine, refuses the restored realm by name, because it cannot tell this from a theft of history.

    The registry comes into DIR, also when it was on a server. With --registry it is put into a PostgreSQL database that
    has none yet. A database that it was in before is never used again: it may have seen more than the backup.

    Topics that were on a carrier come into DIR, too, and the registry says so: the administrator's key has to be in
    the backup and to open with your unlock key. The carrier is not asked; `sealcast topic move` brings them to one
    again, under another name where the old one is still taken.

    What was deleted or forgotten after the backup is back. Delete or forget it again, and keep backups no longer than
    what they hold may be read.
    """
    from sealcast.trust.backups.making import restore as restored

    done = restored(file, directory, key, registry)
    found = done.whole
    document: dict[str, object] = {"realm": str(done.root), "name": done.head.realm, "made": moment(done.head.made_us)}
    document |= {"version": done.state.version, "files": done.files, "frames": found.frames}
    document |= {"records": found.records, "pieces": found.pieces}
    document |= {"registry": done.registry, "registry_before": done.registry_before}
    document |= {"from_carriers": list(done.carried)}
    talk.answer(
        document,
        f"realm {done.head.realm!r} as of {moment(done.head.made_us)} is in {done.root}, registry {done.state.version}",
        f"{talk.counted(found.frames, 'frame')}, {talk.counted(found.records, 'ledger record')} and "
        f"{talk.counted(found.pieces, 'piece')} verified",
    )
    if done.carried and not talk.given.json:
        talk.note(f"in the directory now, and on no carrier: {', '.join(done.carried)}")
    if done.registry_before is not None and not talk.given.json:
        now = done.registry or f"in {done.root}"
        talk.note(f"the registry was at {done.registry_before} and is now {now}: other machines must be told")
