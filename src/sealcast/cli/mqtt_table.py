"""sealcast mqtt table: what the plug-in for mosquitto matches with."""

from __future__ import annotations

import pwd
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk
from sealcast.errors import Corrupt, Misuse, Unavailable

if TYPE_CHECKING:
    from sealcast.mqtt.rows import RowSource
    from sealcast.mqtt.table import CompiledTable, Compiler
    from sealcast.trust.handles import BrokerRealm

EXAMPLE: Final = "Example: sealcast mqtt table /var/lib/mosquitto/sealcast.table --watch"
#: How often a watching command looks at the registry: so long after a revocation, its subject is still served.
LOOK_S: Final = 0.5


def table(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the plug-in finds it (plugin_opt_table).")],
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Which topics [default: all searchable ones].")
    ] = None,
    broker: Annotated[str, typer.Option(metavar="NAME", help="The broker whose halves of keys it holds.")] = "broker",
    owner: Annotated[
        str | None, typer.Option(metavar="USER", help="The system user that mosquitto runs as, if it is not yours.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Write it again after every change, until Ctrl-C.")] = False,
) -> None:
    """Write the table with which mosquitto matches sealed topics, once or after every change.

    The plug-in takes a new table without a restart. Who lost a right is served until the next table is written, so
    leave this running with --watch beside mosquitto. The file holds the broker's halves of keys: it can be read by its
    owner alone, and the plug-in refuses any other.
    """
    from sealcast.mqtt.rows import RowSource
    from sealcast.mqtt.table import Compiler

    realm = talk.open_broker_realm()
    writer = _Writer(realm, RowSource(realm.broker(broker), topics or ()), Compiler(), path, _user_number(owner))
    written = writer.write()
    document = {
        "file": str(path),
        "version": written.version,
        "topics": written.topics,
        "subscriptions": written.subscriptions,
        "labels": written.labels,
    }
    talk.answer(document, _said(path, written))
    if watch:
        _watch(writer, path)


class _Writer:
    """Writes tables of one broker to one file."""

    def __init__(
        self, realm: BrokerRealm, source: RowSource, compiler: Compiler, path: Path, owner: int | None
    ) -> None:
        self._realm, self._source, self._compiler = realm, source, compiler
        self._path, self._owner = path, owner
        self._version = -1
        self._until_us: int | None = None

    def is_due(self) -> bool:
        """Whether the registry changed, or a right or a token began or ended."""
        late = self._until_us is not None and self._realm.clock() >= self._until_us
        return late or self._realm.state().version != self._version

    def write(self) -> CompiledTable:
        from sealcast.mqtt.table import write_table

        state = self._realm.state()
        rows = self._source.at(state, self._realm.clock())
        compiled = self._compiler.compile(state.version, rows.topics)
        write_table(self._path, compiled, self._owner)
        self._version, self._until_us = state.version, rows.until_us
        return compiled


def _watch(writer: _Writer, path: Path) -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    talk.note("watching; Ctrl-C stops in good order")
    while not stop.wait(LOOK_S):
        try:
            if writer.is_due():
                talk.note(_said(path, writer.write()))
        except Corrupt:
            raise
        except Unavailable as error:
            # A registry that is restarted, a disk that is full: it passes, and the last table stays whole meanwhile.
            talk.warn(error.message)


def _said(path: Path, written: CompiledTable) -> str:
    return (
        f"wrote {path}: version {written.version}, {written.topics} topics, {written.subscriptions} subscriptions with "
        f"{written.labels} labels"
    )


def _user_number(owner: str | None) -> int | None:
    if owner is None:
        return None
    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        raise Misuse(f"this system has no user {owner!r}", hint="Debian's mosquitto runs as mosquitto") from None
