"""Every suite of `sealcast bench` and its rows, written out; a row is measured when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sealcast.bench.report import Row


def kernels() -> Iterator[Row]:
    """`seal`, `index`, `index-growth`, and what surrounds the last two: the kernels alone."""
    from sealcast.bench import kernels_index, kernels_seal

    yield kernels_seal.seal_row()
    yield kernels_index.index_row()
    yield kernels_index.blocked_row()
    yield kernels_index.narrow_row()
    yield kernels_index.wide_row()
    yield from kernels_index.growth_rows()


def pipeline() -> Iterator[Row]:
    """`overhead`, `udf`, `doubling`, `micro-batch`: the kernels under Spark."""
    from sealcast.bench import pipeline as measured

    yield from measured.rows()


def groupkeys() -> Iterator[Row]:
    """`random`, `popular`, `content-small`, `content`, `cpu`, `planning`, `membership`, `pipeline`: our group keys."""
    from sealcast.bench import groupkeys as measured

    yield from measured.rows()


def layered() -> Iterator[Row]:
    """`curve`, `hop`, `payload-key`, `table-growth`: what a layer and a hop cost."""
    from sealcast.bench import layered as measured

    yield from measured.rows()


def admit() -> Iterator[Row]:
    """`batch-signed`, `event-signed`: admission with all checks on, beside a signature per event."""
    from sealcast.bench import admit as measured

    yield from measured.rows()


SUITES: Final[dict[str, Callable[[], Iterator[Row]]]] = {
    "kernels": kernels,
    "pipeline": pipeline,
    "groupkeys": groupkeys,
    "admit": admit,
    "layered": layered,
}
