"""Making a backup of a realm, and making a realm of a backup."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import tarfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, cast

from sealcast.errors import Corrupt, Misuse
from sealcast.log import files, whole
from sealcast.log.embedded import EmbeddedLog
from sealcast.log.whole import WholeFiles
from sealcast.trust.backups.carried import CarriedMoment, MomentPassed
from sealcast.trust.backups.envelope import BackupHead, BackupReader, BackupWriter
from sealcast.trust.backups.moment import BackupMoment, BackupPart, scratch
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys import administrator
from sealcast.trust.layout import Layout, read_mark
from sealcast.trust.realm.changes import ReturnTopic
from sealcast.trust.realm.state import RealmState
from sealcast.trust.shared_groups import SharedGroups
from sealcast.trust.storage import address, copying
from sealcast.trust.storage.address import Server

#: Moments that are tried, where something is removed while it is copied.
_TRIES: Final = 5
_MANIFEST: Final = "sealcast-manifest"
#: Others may write where a backup is put. What they left under a name that we take is not written through.
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds."""

    path: Path
    head: BackupHead
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Restored:
    """A realm that was made of a backup, and what was verified."""

    root: Path
    head: BackupHead
    files: int
    state: RealmState
    whole: WholeFiles
    #: Where the registry was, and where it is now; None: in the realm's directory.
    registry_before: str | None = None
    registry: str | None = None
    #: Topics that were on carriers, each with its broker, and are in the directory now.
    carried: tuple[str, ...] = ()


def back_up(realm: OpenRealm, to: Path, public: bytes | None = None, by: str | None = None) -> Backup:
    """Writes one moment of the realm into a new file, sealed; whatever runs on it goes on meanwhile."""
    if to.exists():
        raise Misuse(f"{to} exists already", hint="name a new file")
    if realm.paths.root.resolve() in to.resolve().parents:
        raise Misuse(f"{to} would lie in the realm, and be lost with it", hint="name a file elsewhere")
    for _ in range(_TRIES - 1):
        with suppress(MomentPassed):
            return _write(realm, to, public, by)
    return _write(realm, to, public, by)


def _write(realm: OpenRealm, to: Path, public: bytes | None, by: str | None) -> Backup:
    if not to.absolute().parent.is_dir():  # before everything is copied
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(to))
    partial = to.with_name(f".{to.name}.partial")
    partial.unlink(missing_ok=True)  # of a backup that was cut off
    try:
        with scratch(realm.paths.root) as copies:
            where = read_mark(realm.paths).registry_address(realm.paths)
            server = where if isinstance(where, Server) else None
            carried = CarriedMoment(realm, Path(copies) / "carried")
            found = {topic: realm.site.local.groups(topic) for topic in realm.state().topics}
            groups = {topic: each for topic, each in found.items() if isinstance(each, SharedGroups)}
            parts = BackupMoment(realm.paths.root, Path(copies), carried, server, groups).take()
            with files.named(partial, "creating"):
                made_file = os.open(partial, _NEW_FILE, files.FILE_MODE)
            with open(made_file, "wb") as file:
                version = realm.registry.version()
                made = BackupWriter(file, realm.name, realm.id, realm.clock(), version, public, by)
                size = _pack(parts, made)
                file.flush()
                files.sync_data(file.fileno())
        os.rename(partial, to)
        files.sync_directory(to.absolute().parent)
    finally:
        partial.unlink(missing_ok=True)
    return Backup(to, made.head, len(parts), size)


def _pack(parts: list[BackupPart], into: BackupWriter) -> int:
    """All files, and then a list of them with their digests; how many bytes they have."""
    lines, total = list[str](), 0
    with tarfile.open(fileobj=cast(IO[bytes], into), mode="w|", format=tarfile.PAX_FORMAT) as packed:
        for part in parts:
            with _opened(part) as file:
                size = os.fstat(file.fileno()).st_size if part.size is None else part.size
                hashed = _Hashed(file)
                try:
                    packed.addfile(_about(part.name, size), hashed)
                except OSError:  # tarfile's word for a file that ends too early
                    raise Corrupt(f"{part.path} is shorter than it was, of {size} bytes") from None
            total += size
            lines.append(f"{hashed.digest.hexdigest()} {part.name}")
        listed = "\n".join(lines).encode()
        packed.addfile(_about(_MANIFEST, len(listed)), io.BytesIO(listed))
    into.close()
    return total


def _opened(part: BackupPart) -> IO[bytes]:
    try:
        return part.path.open("rb")
    except FileNotFoundError:
        raise MomentPassed(f"{part.path} was removed while it was to be copied", hint="try again") from None


def _about(name: str, size: int) -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.size, about.mode = size, files.FILE_MODE
    return about


class _Hashed(io.RawIOBase):
    """A file that is hashed as it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


# --- restoring ----------------------------------------------------------------------------------------------


def restore(source: Path, directory: Path, key: Path | None = None, registry: str | None = None) -> Restored:
    """Makes a realm of a backup in a directory that is empty or does not exist. It is there, whole and verified, or it
    is not there at all.

    Its registry is a file in that directory, wherever it was before; or it is put into a database without one, by the
    URL `registry`. The database that it was in is not looked at: it may be gone, or be ahead of the backup.
    """
    where = registry and address.written(registry)
    root = directory.absolute()
    if root.is_symlink():
        raise Misuse(f"{root} is a link", hint="name a new directory")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise Misuse(f"{root} exists and is not empty", hint="name a new directory")
    partial = root.with_name(f".{root.name}.partial")
    _make_anew(partial)
    try:
        with source.open("rb") as file:
            reader = BackupReader(file, source, key)
            count = _unpack(reader, partial, source)
        before = _detach(Layout(partial), reader.head)
        state, found = _verified(partial)
        carried = tuple(f"{topic} at {broker}" for topic, broker in _on_carriers(state))
        state = _off_carriers(partial, state)
        if where:
            _attach(Layout(partial), where, state)
        if root.exists():
            root.rmdir()
        os.rename(partial, root)
        files.sync_directory(root.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return Restored(root, reader.head, count, state, found, before, where, carried)


def _make_anew(partial: Path) -> None:
    """A directory of our own. What others left under its name, they may write to, and it would become the realm."""
    shutil.rmtree(partial, ignore_errors=True)  # of a restoration that was cut off
    files.make_directory(partial.parent)
    try:
        os.mkdir(partial, files.DIRECTORY_MODE)
    except FileExistsError:
        raise Misuse(f"{partial} is in the way, and cannot be removed", hint="remove it, or name another") from None


def _unpack(reader: BackupReader, root: Path, source: Path) -> int:
    digests, listed = dict[str, str](), ""
    try:
        with tarfile.open(fileobj=cast(IO[bytes], reader), mode="r|") as packed:
            for member in packed:
                content = packed.extractfile(member)
                if content is None:
                    raise Corrupt(f"{source}: {member.name!r} is no file")
                if member.name == _MANIFEST:
                    listed = content.read().decode()
                else:
                    digests[member.name] = _put(_within(root, member.name, source), content)
        reader.finish()
    except tarfile.TarError:
        raise Corrupt(f"{source} does not hold a realm", hint="use another backup") from None
    if listed.split("\n") != [f"{digest} {name}" for name, digest in digests.items()]:
        raise Corrupt(f"{source} does not hold the files that it lists", hint="use another backup")
    files.sync_file_systems([root])
    return len(digests)


def _within(root: Path, name: str, source: Path) -> Path:
    path = (root / name).resolve()
    if root.resolve() not in path.parents:
        raise Corrupt(f"{source}: {name!r} would lie outside of the realm")
    return path


def _put(path: Path, content: IO[bytes]) -> str:
    """Writes a file; its digest."""
    path.parent.mkdir(mode=files.DIRECTORY_MODE, parents=True, exist_ok=True)
    hashed = _Hashed(content)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, files.FILE_MODE), "wb") as file:
        shutil.copyfileobj(hashed, file)
    return hashed.digest.hexdigest()


def _detach(paths: Layout, head: BackupHead) -> str | None:
    """Lets the realm use the copy of its registry, and none that is on a server; where it was before."""
    mark = read_mark(paths)
    if mark.id != head.id:
        raise Corrupt(f"the backup says that it is of realm {head.realm!r}, and it is of another")
    if mark.registry is not None:
        files.replace_file(paths.mark, replace(mark, registry=None).to_bytes())
    # Codes that were open then may have been used, revoked or found by others since: none of them counts any more.
    for part in ("", "-wal", "-shm"):
        paths.invitations.with_name(paths.invitations.name + part).unlink(missing_ok=True)
    return mark.registry


def _on_carriers(state: RealmState) -> list[tuple[str, str]]:
    return [at for at in state.carried if at[0] in state.topics]


def _off_carriers(root: Path, state: RealmState) -> RealmState:
    """Has the registry say that topics are in the directory, where the backup put them. What the carriers have by now
    is of the realm that was backed up, which may still run: two that write to one ledger would take it from each
    other, and this one is behind."""
    changes = [ReturnTopic(*at) for at in _on_carriers(state)]
    if not changes:
        return state
    author = administrator.load(Layout(root).administrator_key)
    return OpenRealm(root).registry.transact(lambda _: changes, author)


def _attach(paths: Layout, registry: str, state: RealmState) -> None:
    """Moves the verified registry into a database that has none, and reads it from there once more."""
    mark = replace(read_mark(paths), registry=registry)
    copying.copy(paths.registry, mark.registry_address(paths))
    files.replace_file(paths.mark, mark.to_bytes())
    for part in ("", "-wal", "-shm"):
        paths.registry.with_name(paths.registry.name + part).unlink(missing_ok=True)
    # A snapshot of the file would stand for the rows that are to be read.
    shutil.rmtree(paths.root / "snapshots", ignore_errors=True)
    if OpenRealm(paths.root).state() != state:
        raise Corrupt(f"the registry in {registry} is not the one that was in the backup", hint="name a new database")


def _verified(root: Path) -> tuple[RealmState, WholeFiles]:
    """Reads everything: the registry from its first change, logs, ledgers, and the pieces that they name."""
    for log in sorted({path.parent for path in root.rglob("*.seg")}):
        EmbeddedLog(log).close()  # finds its end, and notes it: where it was is not part of a backup
    realm = OpenRealm(root)
    state = realm.state()
    realm.trust(state)
    return state, whole.verify(root)
