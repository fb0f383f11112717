"""Every suite of `sealcast bench`, written out: the modules whose `rows` are its rows, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from sealcast.bench.report import BenchRow

SUITES: Final[dict[str, tuple[str, ...]]] = {
    "kernels": ("kernels_seal", "kernels_index"),
    "pipeline": ("pipeline",),
    "groupkeys": ("groupkeys", "groupkeys_cpu", "groupkeys_members", "groupkeys_pipeline"),
    "admit": ("admit",),
    "layered": ("layered",),
    "attribute": ("attribute", "attribute_cores"),
    "end-to-end": (
        "end_to_end_publish",
        "end_to_end_open",
        "end_to_end_spark_read",
        "end_to_end_start",
        "end_to_end_label_hash",
        "end_to_end_subscriptions",
        "end_to_end_path",
        "end_to_end_latency",
    ),
    "ease": ("ease", "ease_console"),
    "network": ("network_clients", "network_fan_out", "network_latency"),
    "scale": ("scale",),
    "cluster": ("cluster_kafka", "cluster_workers"),
    "searchable": ("searchable_prefilter", "searchable_match", "searchable_mqtt"),
}


#: Those that know smaller sizes, for a first look.
QUICK: Final = frozenset(
    {"ease", "ease_console", "end_to_end_subscriptions", "scale", *SUITES["network"], *SUITES["cluster"]}
)


def rows(suite: str, *, quick: bool = False) -> Iterator[BenchRow]:
    """Measures a suite, row by row as they are asked for; `quick`: at smaller sizes, where it knows some."""
    for module in SUITES[suite]:
        # Imported when it is measured: naming the suites needs none of what they need.
        measured = import_module(f"sealcast.bench.{module}")
        yield from measured.rows(quick=True) if quick and module in QUICK else measured.rows()
