"""Tables of `sealcast pub`: Parquet files, and Arrow's IPC format as a file or a stream, a batch at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast.cli.pub_lines import TEXT, LineBatch
from sealcast.errors import Misuse, Rejected

if TYPE_CHECKING:
    import pyarrow as pa

    from sealcast.model.schema import Schema

ROWS_PER_BATCH: Final = 16_384
#: With which a file of Arrow's begins; a stream does not.
_FILE: Final = b"ARROW1"


def parquet(path: Path | None, schema: Schema) -> tuple[int, Iterator[LineBatch]]:
    """How many rows there are, and batches of them."""
    if path is None:
        raise Misuse("a Parquet file is read from its end, and cannot come through a pipe", hint="name it: --file FILE")
    import pyarrow.parquet as pq

    with _reading("Parquet"):
        file = pq.ParquetFile(path)
    return file.metadata.num_rows, _numbered(file.iter_batches(ROWS_PER_BATCH), schema, "Parquet")


def arrow(path: Path | None, schema: Schema) -> tuple[int | None, Iterator[LineBatch]]:
    """How many rows there are, if that is known before, and batches of them."""
    import pyarrow as pa

    if path is None or not _is_file(path):
        source = sys.stdin.buffer if path is None else pa.OSFile(str(path))
        with _reading("Arrow"):
            stream = pa.ipc.open_stream(source)
        return None, _numbered(stream, schema, "Arrow")
    with _reading("Arrow"):
        file = pa.ipc.open_file(pa.memory_map(str(path)))
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    return None, _numbered(batches, schema, "Arrow")


def _is_file(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_FILE)) == _FILE


def _numbered(batches: Iterable[pa.RecordBatch], schema: Schema, form: str) -> Iterator[LineBatch]:
    read, source = 0, iter(batches)
    while True:
        with _reading(form):
            batch = next(source, None)
            if batch is None:
                return
            _check(batch)
        for start in range(0, batch.num_rows, ROWS_PER_BATCH):
            part = _with_kinds(batch.slice(start, ROWS_PER_BATCH), schema)
            numbers = range(read + 1, read + part.num_rows + 1)
            read += part.num_rows
            yield LineBatch(part, numbers, [], read)


def _check(batch: Any) -> None:
    """Whether its parts fit together. Whether texts are texts is asked of each row, when it is published."""
    import pyarrow as pa

    for column in batch.columns:
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        raw = pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary()
        (column.view(raw) if text else column).validate(full=True)


def _with_kinds(batch: Any, schema: Schema) -> Any:
    """A payload that is text is said to be text, unless the table says what it is."""
    import pyarrow as pa

    from sealcast.model.event import own_column
    from sealcast.wire.given import is_text

    payload, kind = (own_column(name, schema.names) for name in ("payload", "content_type"))
    names = batch.schema.names
    if kind in names or payload not in names or not is_text(batch.schema.field(payload).type):
        return batch
    return batch.append_column(kind, pa.repeat(pa.scalar(TEXT), batch.num_rows))


@contextmanager
def _reading(form: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise Rejected(
            f"the input is not {form}, or damaged: {str(error).splitlines()[0]}",
            hint="say what it is: --format jsonl, csv, parquet or arrow; or make the file again",
        ) from None
