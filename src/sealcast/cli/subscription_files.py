"""Files of subscriptions, for `sealcast subscription add --file`: every line of one is added, or none."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast.cli import talk
from sealcast.errors import FilterRejected, Misuse, Rejected, SealcastError

if TYPE_CHECKING:
    from sealcast.protections.port import Interest, Wanted
    from sealcast.trust.deployment import Realm

#: Of the lines of a file that are refused, so many are shown.
SHOWN: Final = 20
_FIELDS: Final = frozenset({"id", "subscriber", "filter"})


class LinesRefused(Rejected):
    """Some lines of a file are not what they should be."""

    code = "lines"

    def __init__(self, message: str, lines: list[dict[str, object]]) -> None:
        super().__init__(
            message, hint='a line is {"subscriber": "alice", "filter": "price < 9"}, with an "id" if you like'
        )
        self.lines = lines

    def as_json(self) -> dict[str, object]:
        return {**super().as_json(), "lines": self.lines}


def add_file(here: Realm, topic: str, file: Path, as_: str | None, broker: str | None) -> list[Interest]:
    """Adds what a file asks for: in one transaction, where this machine has the realm; through a gateway, each
    subscriber asks for itself, and what was added before a refusal is ended again."""
    from sealcast.clients.realm import side_of

    wanted = _checked(here, topic, file, as_)
    if here.site.here:
        return side_of(here, topic).subscribe_many(here, topic, wanted, broker=broker)
    return _asked_for(here, topic, wanted, broker)


def _asked_for(here: Realm, topic: str, wanted: list[Wanted], broker: str | None) -> list[Interest]:
    from sealcast.clients.realm import side_of

    side = side_of(here, topic)
    made: list[Interest] = []
    try:
        for subscriber, text, id in wanted:
            with side.interests(here, topic, subscriber) as interests:
                made.append(interests.add(text, id))
            if broker is not None and broker != made[-1].broker:
                side.move(here, topic, subscriber, broker)
    except BaseException:
        _end(here, topic, made)
        raise
    return made


def _end(here: Realm, topic: str, made: list[Interest]) -> None:
    """Ends what was added. Whoever cannot be reached any more is told what is left."""
    from sealcast.clients.realm import unsubscribe

    for subscriber in dict.fromkeys(each.subscriber for each in made):
        ids = [each.id for each in made if each.subscriber == subscriber and each.id is not None]
        try:
            unsubscribe(here, ids, topic, subscriber)
        except SealcastError as error:
            talk.warn(f"{', '.join(ids)} of {subscriber!r} were added and could not be ended again: {error.message}")


# --- lines --------------------------------------------------------------------------------------------


def _checked(here: Realm, topic: str, file: Path, as_: str | None) -> list[Wanted]:
    """What a file asks for, if every line of it can be had."""
    from sealcast.clients.realm import side_of
    from sealcast.trust.realm.changes import Right
    from sealcast.trust.realm.rules.names import check_name

    state, side = here.state(), side_of(here, topic)
    about, named = state.topic(topic), dict[str, int]()
    wanted: list[Wanted] = []
    refused: list[dict[str, object]] = []
    data = file.read_bytes()
    lines = _rows(data) if file.suffix.lower() == ".csv" else _documents(data)
    with talk.progress("checking filters", data.count(b"\n")) as bar:
        for number, body in lines:
            filter = None
            try:
                subscriber, filter, id = _parsed(body, as_)
                side.vet(filter, about)
                state.require(Right.SUBSCRIBE, topic, subscriber)
                if id is not None:
                    check_name("subscription", id)
                    if id in state.subscription_topics:
                        raise Misuse(f"subscription id {id!r} was given before", hint="ids are never given twice")
                    if named.setdefault(id, number) != number:
                        raise Misuse(f"subscription id {id!r} is that of line {named[id]}, too")
                wanted.append((subscriber, filter, id))
            except (Rejected, Misuse) as error:
                refused.append({"line": number, **error.as_json()})
                if len(refused) <= SHOWN:
                    _show(file, number, error, filter)
            if bar is not None and number % 100 == 0:
                bar.update(bar.task_ids[0], completed=number)
    if refused:
        count = len(refused) + len(wanted)
        raise LinesRefused(f"{len(refused)} of {count} lines of {file} were refused; nothing was added", refused)
    if not wanted:
        raise Misuse(f"{file} has no subscriptions in it")
    return wanted


def _documents(data: bytes) -> Iterator[tuple[int, Any]]:
    """A JSON document a line, or what is wrong with it."""
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, Rejected(f"not JSON: {talk.json_trouble(error)}")


def _rows(data: bytes) -> Iterator[tuple[int, Any]]:
    """Rows of CSV under their header. A cell that is empty is as good as none."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Rejected(f"not UTF-8: byte {error.start} of the file") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header = next(reader, [])
    if "filter" not in header or set(header) - _FIELDS or len(set(header)) != len(header):
        raise Rejected(
            f"line 1 has the columns {', '.join(header) or 'none'}", hint="columns are filter, subscriber and id"
        )
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield reader.line_num, Rejected(f"not CSV: {error}")
            return
        if row is None:
            return
        if row:
            fits = len(row) == len(header)
            told = Rejected(f"it has {len(row)} cells, and the header has {len(header)}")
            yield reader.line_num, {k: v for k, v in zip(header, row, strict=False) if v} if fits else told


def _parsed(body: object, as_: str | None) -> Wanted:
    if isinstance(body, Rejected):
        raise body
    if not isinstance(body, Mapping) or set(body) - _FIELDS:
        raise Rejected('a subscription is {"subscriber", "filter", "id"?}')
    subscriber, filter, id = body.get("subscriber", as_), body.get("filter"), body.get("id")
    if not isinstance(subscriber, str) or not isinstance(filter, str) or not isinstance(id, str | None):
        raise Rejected("subscriber and filter are texts, and both are needed", hint="or name the subscriber with --as")
    return subscriber, filter, id


def _show(file: Path, number: int, error: SealcastError, filter: str | None) -> None:
    talk.note(f"{file}:{number}: {error.message}" + (f" ({error.hint})" if error.hint else ""))
    if isinstance(error, FilterRejected) and error.at is not None and filter is not None:
        talk.note(talk.marked(filter, error.at))
