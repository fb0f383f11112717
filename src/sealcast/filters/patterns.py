"""Patterns over strings: LIKE, RE2 and paths. None of them can be made to backtrack.

LIKE is matched by searching for its literal runs from left to right (taking each as early as possible is right, since
% swallows the rest); a pattern with `_` after a % goes to RE2, which is linear in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import re2

from sealcast.errors import FilterRejected
from sealcast.filters.limits import (
    MAX_LIKE_LENGTH,
    MAX_PATH_LEVELS,
    MAX_REGEX_LENGTH,
    MAX_REGEX_MEMORY,
)

#: Compiled patterns kept per process. A filter evicted from here is compiled again, nothing worse.
_CACHED: Final = 8_192

ANY_ONE: Final = "_"
ANY_MANY: Final = "%"


def _options() -> Any:
    options = re2.Options()
    options.max_mem = MAX_REGEX_MEMORY
    options.log_errors = False
    options.never_capture = True
    return options


# --- LIKE ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A LIKE pattern taken apart: literal runs, split at its %; `_` stays inside RE2's text."""

    #: The literal text before the first wildcard: what a trie can look for.
    prefix: str
    #: The literal text after the last wildcard.
    suffix: str
    #: Literal runs between two %, in order; meaningless when `searcher` is there.
    middle: tuple[str, ...]
    #: No wildcard at all: the pattern is `prefix` and nothing else.
    exact: bool
    #: The same pattern for RE2, to be matched against the whole text.
    re2: str = field(repr=False)
    #: There when a `_` makes searching for literal runs insufficient.
    searcher: Any = field(repr=False, compare=False, default=None)

    def matches(self, text: str) -> bool | None:
        """Whether the whole text matches; None for text that is no Unicode (lone surrogates)."""
        if self.exact:
            return text == self.prefix
        if self.searcher is not None:
            try:
                return self.searcher.fullmatch(text) is not None
            except UnicodeEncodeError:
                return None
        if len(text) < len(self.prefix) + len(self.suffix):
            return False
        if not text.startswith(self.prefix) or not text.endswith(self.suffix):
            return False
        at, stop = len(self.prefix), len(text) - len(self.suffix)
        for run in self.middle:
            found = text.find(run, at, stop)
            if found < 0:
                return False
            at = found + len(run)
        return True


def compile_like(pattern: str, escape: str | None, at: int | None = None) -> LikePattern:
    """The pattern ready to match. FilterRejected if it is too long or ends in its escape character."""
    try:
        return _compiled_like(pattern, escape)
    except FilterRejected as error:
        error.at = at
        raise


@lru_cache(_CACHED)
def _compiled_like(pattern: str, escape: str | None) -> LikePattern:
    if len(pattern) > MAX_LIKE_LENGTH:
        raise FilterRejected("limit", f"a LIKE pattern has at most {MAX_LIKE_LENGTH} characters")
    pieces = _pieces(pattern, escape)
    wild = [i for i, (_, literal) in enumerate(pieces) if not literal]
    if not wild:
        text = "".join(char for char, _ in pieces)
        return LikePattern(text, "", (), exact=True, re2=re2.escape(text))
    prefix = "".join(char for char, _ in pieces[: wild[0]])
    suffix = "".join(char for char, _ in pieces[wild[-1] + 1 :])
    middle: list[str] = [""]
    for char, literal in pieces[wild[0] : wild[-1] + 1]:
        if literal:
            middle[-1] += char
        else:
            middle.append("")
    translated = "(?s)" + "".join(
        re2.escape(char) if literal else {ANY_ONE: ".", ANY_MANY: ".*"}[char] for char, literal in pieces
    )
    needs_re2 = any(not literal and char == ANY_ONE for char, literal in pieces)
    searcher = _re2(translated) if needs_re2 else None
    return LikePattern(prefix, suffix, tuple(run for run in middle if run), False, translated, searcher)


def _pieces(pattern: str, escape: str | None) -> list[tuple[str, bool]]:
    """(character, whether it stands for itself), runs of % as one.

    An escape character makes the next one literal, whatever it is. Where the escape character is itself % or _ it
    escapes only those two and is a wildcard elsewhere: ActiveMQ's reading, and the only one that leaves it any use.
    """
    pieces: list[tuple[str, bool]] = []
    wild = (ANY_ONE, ANY_MANY)
    i = 0
    while i < len(pattern):
        char = pattern[i]
        i += 1
        if char == escape and (escape not in wild or pattern[i : i + 1] in wild):
            if i == len(pattern) and escape not in wild:
                raise FilterRejected("syntax", f"the pattern ends in its escape character {escape!r}")
            if i < len(pattern):
                pieces.append((pattern[i], True))
                i += 1
                continue
        if char not in wild:
            pieces.append((char, True))
        elif char == ANY_ONE or not pieces or pieces[-1] != (ANY_MANY, False):
            pieces.append((char, False))
    return pieces


# --- regular expressions ------------------------------------------------------------------------


def compile_regex(pattern: str, at: int | None = None) -> Any:
    """RE2's compiled form; FilterRejected for what RE2 does not take or what would need too much memory."""
    try:
        if len(pattern) > MAX_REGEX_LENGTH:
            raise FilterRejected("limit", f"a regular expression has at most {MAX_REGEX_LENGTH} characters")
        return _re2(pattern)
    except FilterRejected as error:
        error.at = at
        raise


@lru_cache(_CACHED)
def _re2(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _options())
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        kind = "limit" if "too large" in text or "repetition size" in text else "syntax"
        raise FilterRejected(
            kind, f"RE2 refuses the pattern: {text}", hint="RE2 has no backreferences and no look-around"
        ) from None


def regex_matches(pattern: str, text: str) -> bool | None:
    """Whether the pattern occurs anywhere in the text; None for text that is no Unicode (lone surrogates)."""
    try:
        return compile_regex(pattern).search(text) is not None
    except UnicodeEncodeError:
        return None


# --- paths --------------------------------------------------------------------------------------


def path_levels(path: str, at: int = 0) -> tuple[str, ...]:
    """The levels of a path with wildcards; a leading / makes an empty first level, as MQTT counts."""
    levels = tuple(path.split("/"))
    if len(levels) > MAX_PATH_LEVELS:
        raise FilterRejected("limit", f"a path has at most {MAX_PATH_LEVELS} levels", at=at)
    if not path:
        raise FilterRejected("syntax", "the path is empty", at=at, hint="# alone matches every path")
    offset = at
    for i, level in enumerate(levels):
        if ("+" in level or "#" in level) and len(level) > 1:
            raise FilterRejected("syntax", f"+ and # stand for whole levels, not within {level!r}", at=offset)
        if level == "#" and i != len(levels) - 1:
            raise FilterRejected("syntax", "# stands only at the end of a path", at=offset)
        offset += len(level) + 1
    return levels


def path_matches(levels: Sequence[str], text: str) -> bool:
    """Level by level: + is any one level, a final # is any number of them, none included."""
    actual = text.split("/", MAX_PATH_LEVELS + 1)
    if levels[-1] == "#":
        wanted = levels[:-1]
        if len(actual) < len(wanted):
            return False
    else:
        wanted = levels
        if len(actual) != len(wanted):
            return False
    return all(want == "+" or want == level for want, level in zip(wanted, actual, strict=False))
