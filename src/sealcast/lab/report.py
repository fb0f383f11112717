"""What an experiment says: rows beside the paper's numbers, whether they agree, and a chart where there is a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

#: Hears how far an experiment is: points done, points in all.
Told = Callable[[int, int], None]
Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of a chart."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    #: Dashed: computed, not measured.
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False


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
        """Rows as Parquet and, of a figure, the picture. Says which files it wrote."""
        directory.mkdir(parents=True, exist_ok=True)
        stem = self.experiment.replace("/", "-")
        written = [directory / f"{stem}.parquet"]
        pyarrow.parquet.write_table(pa.Table.from_pylist([dict(row) for row in self.rows]), written[0])
        if self.panels:
            written.append(directory / f"{stem}.png")
            _draw(self.panels, self.experiment, written[1])
        return written


def _draw(panels: Sequence[Panel], title: str, path: Path) -> None:
    from matplotlib.figure import Figure  # a tenth of a second that only a figure is worth

    # On no window system: pyplot would keep state for the whole process.
    figure = Figure(figsize=(6.4 * len(panels), 4.8), layout="constrained")
    figure.suptitle(title)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for at, line in enumerate(panel.lines):
            style = "--" if line.dashed else "-"
            axes.plot(line.x, line.y, style, marker="" if line.dashed else "os^vD*"[at % 6], label=line.label)
        if panel.log_x:
            axes.set_xscale("log")
        axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
