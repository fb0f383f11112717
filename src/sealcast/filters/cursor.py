"""A place in a list of tokens: the small steps that the parser of `sql.py` takes."""

from __future__ import annotations

import difflib
from typing import NoReturn

from sealcast.errors import FilterRejected
from sealcast.filters.lexer import KEYWORDS, Lexeme
from sealcast.filters.limits import MAX_NESTING


class TokenCursor:
    __slots__ = ("_nesting", "_next", "_tokens")

    def __init__(self, found: list[Lexeme]) -> None:
        self._tokens = found
        self._next = 0
        self._nesting = 0

    def _attribute(self) -> str:
        name = self._tokens[self._next]
        if name.kind not in ("WORD", "NAME"):
            self._unexpected("the name of an attribute")
        self._next += 1
        return name.value

    def _end(self) -> int:
        return self._tokens[self._next - 1].end

    def _take(self, kind: str) -> bool:
        if self._tokens[self._next].kind != kind:
            return False
        self._next += 1
        return True

    def _expect(self, kind: str) -> None:
        if not self._take(kind):
            self._unexpected(kind)

    def _string(self, what: str) -> Lexeme:
        token = self._tokens[self._next]
        if token.kind != "STRING":
            self._unexpected(what)
        self._next += 1
        return token

    def _nest(self, token: Lexeme, step: int) -> None:
        self._nesting += step
        if self._nesting > MAX_NESTING:
            raise FilterRejected("limit", f"parentheses, NOTs and signs nest at most {MAX_NESTING} deep", at=token.at)

    def _unexpected(self, wanted: str, hint: str | None = None) -> NoReturn:
        token = self._tokens[self._next]
        if token.kind == "END":
            raise FilterRejected("syntax", f"the filter ends where {wanted} should follow", at=token.at, hint=hint)
        near = difflib.get_close_matches(token.value.upper(), KEYWORDS, 1) if token.kind == "WORD" else []
        if near and hint is None:
            hint = f"did you mean {near[0]}?"
        if hint is None and token.kind == "=" and self._next and self._tokens[self._next - 1].kind == "=":
            hint = "write one = to ask whether two values are equal"
        shown = token.value if len(token.value) <= 40 else token.value[:37] + "..."
        raise FilterRejected("syntax", f"{wanted} should follow, not {shown!r}", at=token.at, hint=hint)
