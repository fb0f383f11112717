"""LIKE: % is any number of characters, _ is any one, all others are themselves; case counts.

A pattern is cut at its %. What stands before the first must be the beginning of the text, what stands after the last
its end, and the segments between are looked for from left to right, each as early as possible: taking one later never
helps, since % swallows the rest. So matching is linear in the text, whatever the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sealcast.errors import FilterRejected
from sealcast.filters.limits import MAX_COMPILED_BYTES, MAX_LIKE_LENGTH
from sealcast.filters.remembered import Remembered

#: Bytes that a compiled pattern takes for each of its characters: a number of as many bits, and an entry for it.
_CHARACTER_BYTES: Final = 512
_ONE: Final = "_"
_MANY: Final = "%"
_WILD: Final = (_ONE, _MANY)


@dataclass(frozen=True, slots=True)
class PatternSegment:
    """Characters between two %; None is a `_`."""

    characters: tuple[str | None, ...]
    #: The same as text, if no `_` is among them.
    plain: str | None = field(init=False)
    _masks: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = [c for c in self.characters if c is not None]
        object.__setattr__(self, "plain", "".join(known) if len(known) == len(self.characters) else None)
        # For `find`: bit i of a character's mask says that the character may stand at place i.
        anywhere = sum(1 << i for i, c in enumerate(self.characters) if c is None)
        masks = {_ONE * 2: anywhere}
        for i, c in enumerate(self.characters):
            if c is not None:
                masks[c] = masks.get(c, anywhere) | 1 << i
        object.__setattr__(self, "_masks", masks)

    def stands_at(self, text: str, at: int) -> bool:
        if self.plain is not None:
            return text.startswith(self.plain, at)
        end = at + len(self.characters)
        return end <= len(text) and all(c is None or c == d for c, d in zip(self.characters, text[at:end], strict=True))

    def find(self, text: str, start: int, stop: int) -> int:
        """Where the segment first stands within text[start:stop]; -1 if nowhere."""
        if self.plain is not None:
            return text.find(self.plain, start, stop)
        # Shift-and: bit i of `state` says that the first i + 1 characters of the segment end here. One step a
        # character, whatever the segment: comparing at every place would take their product.
        masks, anywhere = self._masks, self._masks[_ONE * 2]
        length, state = len(self.characters), 0
        done = 1 << (length - 1)
        for i in range(start, stop):
            state = (state << 1 | 1) & masks.get(text[i], anywhere)
            if state & done:
                return i + 1 - length
        return -1


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern taken apart. One segment: no %, so the text has to be that segment."""

    segments: tuple[PatternSegment, ...]
    #: The literal text before the first wildcard, for tries.
    prefix: str
    #: The literal text after the last wildcard; empty if there is none.
    suffix: str
    #: No wildcard at all: the text has to be `prefix`.
    exact: bool
    #: One % at the end and nothing else: the text has to begin with `prefix`.
    only_prefix: bool

    def matches(self, text: str) -> bool:
        first, last = self.segments[0], self.segments[-1]
        if len(self.segments) == 1:
            return len(text) == len(first.characters) and first.stands_at(text, 0)
        at, stop = len(first.characters), len(text) - len(last.characters)
        if at > stop or not first.stands_at(text, 0) or not last.stands_at(text, stop):
            return False
        for segment in self.segments[1:-1]:
            found = segment.find(text, at, stop)
            if found < 0:
                return False
            at = found + len(segment.characters)
        return True


def compile_like(pattern: str, escape: str | None, at: int | None = None) -> LikePattern:
    """The pattern ready to match. FilterRejected if it is too long or ends in its escape character."""
    try:
        return compiled_likes((pattern, escape))
    except FilterRejected as error:
        error.at = at
        raise


def _compiled(given: tuple[str, str | None]) -> LikePattern:
    pattern, escape = given
    if len(pattern) > MAX_LIKE_LENGTH:
        raise FilterRejected("limit", f"a LIKE pattern has at most {MAX_LIKE_LENGTH} characters")
    pieces = _pieces(pattern, escape)
    runs: list[list[str | None]] = [[]]
    for char, literal in pieces:
        if literal or char == _ONE:
            runs[-1].append(char if literal else None)
        else:
            runs.append([])
    # Empty segments between two % ask for nothing.
    middle = [run for run in runs[1:-1] if run]
    ends = [runs[0], *middle, runs[-1]] if len(runs) > 1 else runs
    wild = [i for i, (_, literal) in enumerate(pieces) if not literal]
    return LikePattern(
        segments=tuple(PatternSegment(tuple(run)) for run in ends),
        prefix="".join(c for c, _ in (pieces[: wild[0]] if wild else pieces)),
        suffix="".join(c for c, _ in pieces[wild[-1] + 1 :]) if wild else "",
        exact=not wild,
        only_prefix=len(ends) == 2 and not runs[-1] and None not in runs[0],
    )


compiled_likes: Final = Remembered(
    _compiled, lambda given, _: _CHARACTER_BYTES * (len(given[0]) + 1), MAX_COMPILED_BYTES
)


def _pieces(pattern: str, escape: str | None) -> list[tuple[str, bool]]:
    """(character, whether it stands for itself).

    An escape character makes the next one literal, whatever it is. Where the escape character is itself % or _ it
    escapes only those two and is a wildcard elsewhere: ActiveMQ's reading, and the only one that leaves it any use.
    """
    pieces: list[tuple[str, bool]] = []
    i = 0
    while i < len(pattern):
        char, following = pattern[i], pattern[i + 1 : i + 2]
        if char == escape and (escape not in _WILD or following in _WILD):
            if not following:
                raise FilterRejected("syntax", f"the pattern ends in its escape character {escape!r}")
            pieces.append((following, True))
            i += 2
            continue
        pieces.append((char, char not in _WILD))
        i += 1
    return pieces
