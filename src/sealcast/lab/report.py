"""What an experiment says: rows beside the paper's numbers, whether they agree, and a chart where there is a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

#: Hears how far an experiment is: points done, points in all.
Told = Callable[[int, int], None]
Row = Mapping[str, object]


def columns(*names: str) -> Callable[..., Row]:
    """Makes rows that all have these cells; those that are not given are empty."""
    return lambda **given: dict.fromkeys(names) | given


class Look(StrEnum):
    """What a curve is, and hence how it is drawn."""

    MEASURED = "measured"
    #: Computed: by the paper's own equations, or by a law fitted to what was measured.
    COMPUTED = "computed"
    #: Computed: exactly for what is simulated.
    EXACT = "exact"
    #: What nothing can be below.
    BOUND = "bound"
    #: As the paper prints it.
    PRINTED = "printed"


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve of a chart. Curves of one label share a colour."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    look: Look = Look.MEASURED


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    x: str
    y: str
    lines: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    #: What stands at x = 0, 1, ... where x is no quantity.
    ticks: Sequence[str] = ()
    #: In the legend, beside each look that is not measured.
    looks: Mapping[Look, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one experiment. It may well disagree with the paper: that is a finding, not a failure."""

    experiment: str
    rows: Sequence[Row]
    agrees: bool
    notes: Sequence[str] = ()
    panels: Sequence[Panel] = field(default=(), repr=False)

    def as_json(self) -> dict[str, object]:
        return {
            "experiment": self.experiment,
            "rows": [dict(row) for row in self.rows],
            "agrees": self.agrees,
            "notes": list(self.notes),
        }

    def write(self, directory: Path) -> list[Path]:
        """Writes the rows as Parquet and, if there are panels, a picture; the files that it wrote."""
        directory.mkdir(parents=True, exist_ok=True)
        stem = self.experiment.replace("/", "-")
        written = [directory / f"{stem}.parquet"]
        pyarrow.parquet.write_table(pa.Table.from_pylist([dict(row) for row in self.rows]), written[0])
        if self.panels:
            written.append(directory / f"{stem}.png")
            _draw(self.panels, self.experiment, written[1])
        return written


# --- pictures -------------------------------------------------------------------------------------------

_STYLES: Final[dict[Look, dict[str, Any]]] = {
    Look.MEASURED: {"linestyle": "-", "linewidth": 1.2, "markersize": 5},
    Look.COMPUTED: {"linestyle": "--", "linewidth": 1.2},
    Look.EXACT: {"linestyle": ":", "linewidth": 2.2},
    Look.BOUND: {"linestyle": "-", "linewidth": 2.5, "color": "black", "alpha": 0.6},
    Look.PRINTED: {"linestyle": "", "marker": "_", "markersize": 22, "markeredgewidth": 2, "color": "black"},
}
_MARKERS: Final = "os^vDP*X"
_ACROSS: Final = 2
#: Up to which ratio of the ends of an axis there is room for three numbers a power of ten.
_FEW_DECADES: Final = 20_000


def _draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    from matplotlib.figure import Figure  # a tenth of a second that only a figure is worth

    down = -(-len(panels) // _ACROSS)
    across = min(_ACROSS, len(panels))
    # On no window system: pyplot would keep state for the whole process.
    figure = Figure(figsize=(7.2 * across, 4.8 * down + 0.8), layout="constrained")
    figure.suptitle(title)
    # The same thing has the same colour in every panel, so that one legend serves them all, where it hides nothing.
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    places = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes, panel in zip(places, panels, strict=False):
        _plot(axes, panel, labels)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    named = {label: handle for axes in places for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=5, fontsize=9)
    figure.savefig(path, dpi=120)


def _plot(axes: Axes, panel: Panel, labels: Sequence[str]) -> None:
    for line in panel.lines:
        style, at = dict(_STYLES[line.look]), labels.index(line.label)
        style.setdefault("color", f"C{at}")
        if line.look is Look.MEASURED:
            style.setdefault("marker", _MARKERS[at % len(_MARKERS)])
        if panel.ticks and line.look is not Look.PRINTED:  # nothing lies between
            style |= {"linestyle": "", "marker": _MARKERS[at % len(_MARKERS)], "fillstyle": "none"}
        # A colour is named by what was measured in it; the other looks are named once, for all colours.
        axes.plot(line.x, line.y, label=line.label if line.look not in panel.looks else None, **style)
    for look, meaning in panel.looks.items():
        axes.plot([], [], label=meaning, **({"color": "gray"} | _STYLES[look]))
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.log_x:
        axes.set_xscale("log")
        _readable(axes.xaxis)
    if panel.log_y:
        axes.set_yscale("log")
        _readable(axes.yaxis)
    if not panel.log_y:
        axes.set_ylim(0, None)
    if not panel.log_x and all(float(x).is_integer() for line in panel.lines for x in line.x):
        axes.locator_params(axis="x", integer=True)  # there is no half of a layer
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=30, ha="right")
    axes.grid(alpha=0.3)


def _readable(axis: Axis) -> None:
    """Numbers, and more of them than the powers of ten, where there is room for them."""
    from matplotlib.ticker import LogLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < _FEW_DECADES * low else (1,)))
    axis.set_major_formatter("{x:,.10g}")
    axis.set_minor_formatter("")
