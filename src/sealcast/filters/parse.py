"""Text -> tree, whatever the format: SQL, or what a prefix names (`path:`, `tags:`, `regex:`, `xpath:`, `sql:`)."""

from __future__ import annotations

import re
from typing import Final

from sealcast.errors import FilterRejected
from sealcast.filters.check import fit
from sealcast.filters.cost import check_cost
from sealcast.filters.formats import FORMATS, parse_path
from sealcast.filters.limits import MAX_DEPTH, MAX_TEXT_LENGTH
from sealcast.filters.sql import parse_sql
from sealcast.filters.tree import Condition
from sealcast.model.schema import Schema

_PREFIX: Final = re.compile(r"\s*+(?:(?P<format>path|tags|regex|xpath|sql):|(?P<slash>/(?!\*)))")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def parse(text: str, schema: Schema | None = None) -> Condition:
    """The tree of a filter; with a schema, typed against it (`check.check` also tells what it warns of)."""
    if len(text) > MAX_TEXT_LENGTH:
        raise FilterRejected(
            "limit", f"a filter has at most {MAX_TEXT_LENGTH} characters, not {len(text)}", at=MAX_TEXT_LENGTH
        )
    if not text.isascii():
        lone = _SURROGATE.search(text)
        if lone is not None:
            raise FilterRejected("syntax", "the filter is not valid Unicode (a lone surrogate)", at=lone.start())
    condition = _parse(text)
    # No tree is deeper or dearer than its text is long (but for the weights): short filters need no counting.
    if len(text) > MAX_DEPTH:
        check_cost(condition)
    return condition if schema is None else fit(condition, schema)


def _parse(text: str) -> Condition:
    prefix = _PREFIX.match(text)
    if prefix is None:
        return parse_sql(text)
    if prefix["slash"]:
        # No SQL begins with a slash, every path of paper 004 does.
        return parse_path(text, prefix.start("slash"))
    if prefix["format"] == "sql":
        return parse_sql(text, prefix.end())
    return FORMATS[prefix["format"]](text, prefix.end())
