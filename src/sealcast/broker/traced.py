"""Which traced frames are in a piece, and how long each stage took: a line of JSON on its way to the driver.

Workers know nothing of collectors. They write down times beside a piece, and the process that commits it makes spans.
Nothing of it is in the piece or in the ledger, which are the same whether anybody traces or not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sealcast.wire import traceparent

#: Traced frames of one piece that are written down, at most: publishers decide what they trace.
MAX_TRACED: Final = 64


class Watch:
    """Times of stages, read one after the other."""

    def __init__(self) -> None:
        self._marks: list[tuple[str, int]] = [("", time.time_ns())]

    def passed(self, stage: str) -> None:
        self._marks.append((stage, time.time_ns()))

    def note(self, contexts: Sequence[bytes]) -> str | None:
        """The line; None where nobody traces."""
        wanted = [context.hex() for context in contexts if traceparent.sampled(context)][:MAX_TRACED]
        if not wanted:
            return None
        stages = [[name, begin, end] for (_, begin), (name, end) in zip(self._marks, self._marks[1:], strict=False)]
        return json.dumps({"contexts": wanted, "stages": stages})


class TracedPiece(NamedTuple):
    """A line, read again."""

    contexts: list[bytes]
    #: Names, and when each began and ended, in nanoseconds since 1970.
    stages: list[tuple[str, int, int]]


def read(lines: str) -> Iterator[TracedPiece]:
    for line in lines.splitlines():
        document = json.loads(line)
        stages = [(str(name), int(begin), int(end)) for name, begin, end in document["stages"]]
        yield TracedPiece([bytes.fromhex(context) for context in document["contexts"]], stages)
