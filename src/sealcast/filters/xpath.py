"""XPath 1.0 over XML payloads: no entities, no DTD, no network, and a bound on what one expression may visit.

libxml2 offers no clock to stop an expression, so its cost is bounded before it runs. An expression visits at most
about n**k nodes of a payload with n nodes, where k counts what multiplies: //, .., the axes that leave the subtree,
absolute paths, unions, and comparisons of two node-sets. Where that is beyond the limit the answer is unknown.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, Final

from lxml import etree

from sealcast.errors import FilterRejected
from sealcast.filters.limits import (
    MAX_XML_BYTES,
    MAX_XPATH_LENGTH,
    MAX_XPATH_NESTING,
    MAX_XPATH_VISITS,
)

_CACHED: Final = 1_024
_QUOTED: Final = re.compile(r"\"[^\"]*\"|'[^']*'")
_WIDE: Final = re.compile(
    r"//|\.\.|\||(?:ancestor|descendant|following|preceding|parent)[\w-]*\s*::"
    # A single / that no step stands before: an absolute path.
    r"|(?<![\w\])*./@\s])\s*/(?!/)|(?<=\b(?:or))\s+/(?!/)|(?<=\b(?:and|div|mod))\s+/(?!/)"
)
_COMPARISON: Final = re.compile(r"(''|\b[\d.]+)?\s*(?:!=|<=|>=|=|<|>)\s*(''|[\d.]+)?")


def check_expression(expression: str, at: int) -> str:
    """The expression itself, once it is known to be short, flat and valid, without variables or unknown functions."""
    if len(expression) > MAX_XPATH_LENGTH:
        raise FilterRejected("limit", f"an XPath has at most {MAX_XPATH_LENGTH} characters", at=at)
    bare = _QUOTED.sub("''", expression)
    depth = 0
    for char in bare:
        depth += (char in "([") - (char in ")]")
        if depth > MAX_XPATH_NESTING:
            raise FilterRejected("limit", f"an XPath nests at most {MAX_XPATH_NESTING} deep", at=at)
    if "$" in bare:
        raise FilterRejected("inexpressible", "an XPath here has no variables", at=at)
    try:
        # Tried once on a document of one element: that finds unknown functions and prefixes, too.
        _compiled(expression)(etree.Element("x"))
    except (etree.XPathError, ValueError) as error:
        hint = "namespaces have no prefixes here; use local-name()" if "prefix" in str(error) else None
        raise FilterRejected("syntax", f"not an XPath: {error}", at=at, hint=hint) from None
    return expression


class Document:
    """A payload parsed once, for all the XPaths asked of it."""

    __slots__ = ("_nodes", "_root")

    def __init__(self, root: Any, nodes: int) -> None:
        self._root = root
        self._nodes = nodes

    @classmethod
    def parse(cls, payload: bytes) -> Document | None:
        """None for what is too long, not well-formed, or brings a DTD: such a payload makes every XPath unknown."""
        if not 0 < len(payload) <= MAX_XML_BYTES or b"<!DOCTYPE" in payload:
            return None
        parser = etree.XMLParser(
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            dtd_validation=False,
            huge_tree=False,
            recover=False,
        )
        try:
            root = etree.fromstring(payload, parser)
        except (etree.XMLSyntaxError, ValueError, LookupError):
            return None
        # The bytes above may hide a DTD in another encoding.
        if root is None or root.getroottree().docinfo.doctype:
            return None
        # Every element, text and comment brings a <, every attribute a =; long texts cost by their length.
        nodes = 2 * payload.count(b"<") + payload.count(b"=") + len(payload) // 32
        return cls(root, nodes)

    def matches(self, expression: str) -> bool | None:
        """True for a node-set that is not empty, a string that is not empty, a number that is not zero or NaN."""
        if self._nodes ** _exponent(expression) > MAX_XPATH_VISITS:
            return None
        try:
            found = _compiled(expression)(self._root.getroottree())
        except (etree.XPathError, ValueError):
            return None
        if isinstance(found, float):
            return found != 0 and not math.isnan(found)
        return bool(found)


@lru_cache(_CACHED)
def _compiled(expression: str) -> Any:
    # regexp=False: the EXSLT regular expressions backtrack.
    return etree.XPath(expression, smart_strings=False, regexp=False)


@lru_cache(_CACHED)
def _exponent(expression: str) -> int:
    bare = _QUOTED.sub("''", expression)
    sets = sum(1 for left, right in _COMPARISON.findall(bare) if not left and not right)
    return max(1, len(_WIDE.findall(bare)) + sets)
