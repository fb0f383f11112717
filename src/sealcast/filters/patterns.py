"""Regular expressions (RE2) and paths. Neither can be made to backtrack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import re2

from sealcast.errors import FilterRejected
from sealcast.filters.limits import (
    MAX_COMPILED_BYTES,
    MAX_PATH_LEVELS,
    MAX_REGEX_LENGTH,
    MAX_REGEX_MEMORY,
    MAX_REGEX_PROGRAM,
)
from sealcast.filters.remembered import Remembered


def _options() -> Any:
    options = re2.Options()
    options.max_mem = MAX_REGEX_MEMORY
    options.log_errors = False
    options.never_capture = True
    return options


# --- regular expressions ------------------------------------------------------------------------


def compile_regex(pattern: str, at: int | None = None) -> Any:
    """RE2's compiled form; FilterRejected for what RE2 does not take or what would need too much memory."""
    try:
        if len(pattern) > MAX_REGEX_LENGTH:
            raise FilterRejected("limit", f"a regular expression has at most {MAX_REGEX_LENGTH} characters")
        return compiled_regexes(pattern)
    except FilterRejected as error:
        error.at = at
        raise


def _re2(pattern: str) -> Any:
    try:
        compiled = re2.compile(pattern, _options())
    except re2.error as error:
        detail = error.args[0] if error.args else ""
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        kind = "limit" if "too large" in text or "repetition size" in text else "syntax"
        raise FilterRejected(
            kind, f"RE2 refuses the pattern: {text}", hint="RE2 has no backreferences and no look-around"
        ) from None
    if compiled.programsize > MAX_REGEX_PROGRAM:
        raise FilterRejected(
            "limit", f"the pattern takes {compiled.programsize} instructions, {MAX_REGEX_PROGRAM} are allowed"
        )
    return compiled


#: RE2 builds its states as texts ask for them: every pattern may come to use all that it is allowed.
compiled_regexes: Final = Remembered(_re2, lambda pattern, _: MAX_REGEX_MEMORY + len(pattern), MAX_COMPILED_BYTES)


def regex_matcher(pattern: str) -> Callable[[str], bool | None]:
    """Says whether the pattern occurs anywhere in a text; None for text that is no Unicode (lone surrogates)."""
    search = compile_regex(pattern).search

    def matches(text: str) -> bool | None:
        try:
            return search(text) is not None
        except UnicodeEncodeError:
            return None

    return matches


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
