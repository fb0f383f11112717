"""Where the time of a measurement goes, drawn: a bar for each side of each row that says what it consists of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sealcast.bench.report import BenchRow


def draw(rows: Sequence[BenchRow], path: Path) -> bool:
    """Writes a figure (PNG) of these rows of one unit; False, and none, where no row has parts."""
    told = [row for row in rows if row.parts and row.reference_parts]
    if not told:
        return False
    from matplotlib.figure import Figure  # a tenth of a second that only a figure is worth

    # Rows of one suite share our side.
    bars = {"Sealcast": told[0].parts or {}} | {row.reference_name: row.reference_parts or {} for row in told}
    parts = list(dict.fromkeys(part for bar in bars.values() for part in bar))
    figure = Figure(figsize=(9.6, 1.6 + 0.9 * len(bars)), layout="constrained")
    axes = figure.subplots()
    left = dict.fromkeys(bars, 0.0)
    for number, part in enumerate(parts):
        widths = [bar.get(part, 0.0) for bar in bars.values()]
        axes.barh(list(bars), widths, left=list(left.values()), label=part, color=f"C{number}")
        left = {name: left[name] + width for name, width in zip(bars, widths, strict=True)}
    for place, total in enumerate(left.values()):
        axes.text(total, place, f" {total:.1f}", va="center", fontsize=9)
    axes.set_yticks(range(len(bars)), [_folded(name) for name in bars])
    axes.invert_yaxis()
    axes.set(
        xlabel=told[0].unit, title="Where the time goes, from publish to opened", xlim=(0, 1.1 * max(left.values()))
    )
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=len(parts), fontsize=9)
    figure.savefig(path, dpi=120)
    return True


def _folded(name: str) -> str:
    """A long name on several lines."""
    return name.replace(", ", ",\n")
