"""What patterns said of texts before: symbols, venues and paths come again with every batch, and so do the filters.

Every text of a column gets a number once, and every pattern a byte per number: not asked yet, true, false or unknown.
A batch is then looked up, not asked: one pass over its numbers, and a question for each text that is new to a pattern.
Memory is bounded; a column whose texts never come again only fills it and is forgotten as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.filters.tree import Condition

#: Answers kept for one column, a byte each, over all patterns.
MAX_ANSWERS: Final = 1 << 25
#: Bytes of texts kept for one column, counted by characters.
MAX_TEXT_BYTES: Final = 1 << 25
NOT_ASKED, TRUE, FALSE, UNKNOWN = range(4)
_CODE: Final = {True: TRUE, False: FALSE, None: UNKNOWN}

Numbers = NDArray[np.int64]
Answers = NDArray[np.uint8]


class Lexicon:
    """The texts of one column that were seen, and what each pattern said of them."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._texts: list[str] = []
        self._characters = 0
        #: By identity of the pattern's node, which is kept so that its identity stays its own.
        self._answers: dict[int, tuple[Condition, Answers]] = {}

    def numbers(self, texts: Sequence[str]) -> Numbers:
        """A number for each text. They hold until the next call."""
        if len(self._texts) * len(self._answers) > MAX_ANSWERS or self._characters > MAX_TEXT_BYTES:
            self._number.clear()
            self._texts.clear()
            self._answers.clear()
            self._characters = 0
        known = self._number
        for text in texts:
            if text not in known:
                known[text] = len(self._texts)
                self._texts.append(text)
                self._characters += len(text)
        return np.fromiter(map(known.__getitem__, texts), np.int64, len(texts))

    def ask(self, pattern: Condition, matches: Callable[[str], bool | None], numbers: Numbers) -> Answers:
        """What the pattern says of each of these texts."""
        kept = self._answers.get(id(pattern))
        answers = kept[1] if kept is not None else np.zeros(0, np.uint8)
        if answers.size < len(self._texts):
            grown = np.zeros(max(64, 2 * len(self._texts)), np.uint8)
            grown[: answers.size] = answers
            answers = grown
            self._answers[id(pattern)] = (pattern, answers)
        said = answers.take(numbers)
        new = numbers[said == NOT_ASKED]
        if new.size:
            for number in np.unique(new).tolist():
                answers[number] = _CODE[matches(self._texts[number])]
            said = answers.take(numbers)
        return said
