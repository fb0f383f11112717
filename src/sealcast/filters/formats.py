"""The other formats of paper 004 (Pallickara and others): paths, tag templates, regular expressions and XPath.

path:/Sports/+/Football        of attribute `subject`;  path:venue=/EU/#  of another
tags:Sports=NBA, Team=*        every tag has that value; * asks only that it is there
regex:symbol=^A.*X$            RE2, found anywhere in the attribute
xpath://order[@total > 100]    XPath 1.0 over an XML payload
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from sealcast.errors import FilterRejected
from sealcast.filters import patterns
from sealcast.filters.limits import MAX_TAGS
from sealcast.filters.tree import And, Compare, Comparison, Condition, IsNull, Literal, Name, PathMatch, Regex, XPath
from sealcast.filters.xpath import check_expression
from sealcast.model.schema import MAX_NAME_LENGTH

#: The attribute that `path:` reads when it names none.
PATH_ATTRIBUTE: Final = "subject"

_NAME: Final = r"\s*+(?:\[(?P<quoted>(?:[^\[\]]|\[\[|\]\])*+)\]|(?P<name>[^\W\d][\w$.:-]*+|\$[\w$.:-]*+))\s*+"
_ATTRIBUTE: Final = re.compile(_NAME + "=")
_TAG: Final = re.compile(
    _NAME + r"""=\s*+(?:'(?P<single>(?:[^']|'')*+)'|"(?P<double>(?:[^"]|"")*+)"|(?P<bare>[^,'"]*+))\s*+(?P<stop>,|\Z)"""
)


def parse_path(text: str, start: int) -> Condition:
    name, body = _named(text, start)
    if name is None:
        name, body = PATH_ATTRIBUTE, start + len(text[start:]) - len(text[start:].lstrip())
    return PathMatch(name, patterns.path_levels(text[body:].strip(), body), at=start, end=len(text))


def parse_regex(text: str, start: int) -> Condition:
    name, body = _named(text, start)
    if name is None:
        raise FilterRejected("syntax", "the attribute is missing", at=start, hint="write regex:ATTRIBUTE=PATTERN")
    if body == len(text):
        raise FilterRejected("syntax", "the pattern is missing", at=body, hint="write regex:ATTRIBUTE=PATTERN")
    patterns.compile_regex(text[body:], body)
    return Regex(name, text[body:], at=start, end=len(text))


def parse_xpath(text: str, start: int) -> Condition:
    expression = text[start:].strip()
    if not expression:
        raise FilterRejected("syntax", "the XPath is empty", at=start)
    return XPath(check_expression(expression, start), at=start, end=len(text))


def parse_tags(text: str, start: int) -> Condition:
    """`A=x, B=*`: all of them must hold. A bare value is read in the attribute's own type once a schema is there."""
    items: list[Condition] = []
    at = start
    while True:
        match = _TAG.match(text, at)
        if match is None:
            raise FilterRejected(
                "syntax", "a tag should stand here", at=at, hint='write NAME=VALUE, NAME="a, b" or NAME=*'
            )
        if len(items) == MAX_TAGS:
            raise FilterRejected("limit", f"a template has at most {MAX_TAGS} tags", at=at)
        items.append(_tag(match))
        at = match.end()
        if match["stop"] != ",":
            return items[0] if len(items) == 1 else And(tuple(items), at=start, end=at)


def _tag(match: re.Match[str]) -> Condition:
    name, at, end = Name(_attribute(match), at=match.start()), match.start(), match.start("stop")
    for group, quote in (("single", "'"), ("double", '"')):
        if match[group] is not None:
            literal = Literal(match[group].replace(quote * 2, quote), at=match.start(group))
            return Compare(Comparison.EQ, name, literal, at=at, end=end)
    value, where = match["bare"].strip(), match.start("bare")
    if value == "*":
        return IsNull(name, True, at=at, end=end)
    if not value or "*" in value:
        message = "the value is missing" if not value else "* stands alone or not at all"
        raise FilterRejected("syntax", message, at=where, hint="quote a value that is empty or has a * or a comma")
    return Compare(Comparison.EQ, name, Literal(value, value, at=where), at=at, end=end)


def _attribute(match: re.Match[str]) -> str:
    name = match["name"] or (match["quoted"] or "").replace("[[", "[").replace("]]", "]")
    if len(name) > MAX_NAME_LENGTH:
        raise FilterRejected("limit", f"a name has at most {MAX_NAME_LENGTH} characters", at=match.start())
    return name


def _named(text: str, start: int) -> tuple[str | None, int]:
    """(attribute, where the rest begins) of `ATTRIBUTE=rest`; (None, start) if no attribute is named."""
    match = _ATTRIBUTE.match(text, start)
    return (None, start) if match is None else (_attribute(match), match.end())


FORMATS: Final[dict[str, Callable[[str, int], Condition]]] = {
    "path": parse_path,
    "tags": parse_tags,
    "regex": parse_regex,
    "xpath": parse_xpath,
}
