"""XPath 1.0 over XML payloads: no entities, no DTD, no network, and a bound on what one expression may visit.

libxml2 offers no clock to stop an expression, so its cost is bounded before it runs. An expression visits at most
about n**k nodes of a payload with n nodes, where k counts what multiplies: //, .., the axes that leave the subtree,
absolute paths, unions, and comparisons of two node-sets. Where that is beyond the limit the answer is unknown.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

from lxml import etree

from sealcast.errors import FilterRejected
from sealcast.filters.limits import MAX_XML_BYTES, MAX_XPATH_LENGTH, MAX_XPATH_NESTING, MAX_XPATH_VISITS

_CACHED: Final = 1_024
_TOKEN: Final = re.compile(
    r"""\s*+(?: (?P<constant>"[^"]*+"|'[^']*+'|\d++(?:\.\d*+)?|\.\d++)
      | (?P<word>[^\W\d][\w.-]*+(?::(?!:)[^\W\d][\w.-]*+)?)
      | (?P<sign>//|::|\.\.|!=|<=|>=|[/()\[\]@,.|+\-*=<>$:])
      | (?P<bad>\S))""",
    re.VERBOSE,
)
_WIDE_AXES: Final = ("ancestor", "descendant", "following", "preceding", "parent")
_COMPARISONS: Final = frozenset(("=", "!=", "<", "<=", ">", ">="))
_OPERATORS: Final = _COMPARISONS | {"+", "-", "|"}
_NODE_TESTS: Final = frozenset(("node", "text", "comment", "processing-instruction"))


class _Plan(NamedTuple):
    run: Any
    #: The k of the module's docstring.
    exponent: int


def check_expression(expression: str, at: int) -> str:
    """The expression itself, once it is known to be short, flat and valid, without variables or unknown functions."""
    if len(expression) > MAX_XPATH_LENGTH:
        raise FilterRejected("limit", f"an XPath has at most {MAX_XPATH_LENGTH} characters", at=at)
    try:
        # Tried once on a document of one element: that finds unknown functions and prefixes, too.
        _plan(expression).run(etree.Element("x"))
    except FilterRejected as error:
        error.at = at
        raise
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
            resolve_entities=False, no_network=True, load_dtd=False, dtd_validation=False, huge_tree=False
        )
        try:
            root = etree.fromstring(payload, parser)
        except (etree.XMLSyntaxError, ValueError, LookupError):
            return None
        # The bytes above may hide a DTD in another encoding.
        if root is None or root.getroottree().docinfo.doctype:
            return None
        # An element brings a < of its own, a text follows some <, an attribute brings a =; long texts cost by length.
        nodes = 2 * payload.count(b"<") - payload.count(b"</") + payload.count(b"=") + len(payload) // 32
        return cls(root, nodes)

    def matches(self, expression: str) -> bool | None:
        """True for a node-set that is not empty, a string that is not empty, a number that is not zero or NaN."""
        plan = _plan(expression)
        if self._nodes**plan.exponent > MAX_XPATH_VISITS:
            return None
        try:
            found = plan.run(self._root)
        except (etree.XPathError, ValueError):
            return None
        if isinstance(found, float):
            return found != 0 and not math.isnan(found)
        return bool(found)


@lru_cache(_CACHED)
def _plan(expression: str) -> _Plan:
    """The expression compiled to start at the document, as XPath's users expect, and its cost."""
    text, exponent = _scan(_tokens(expression))
    # regexp=False: the EXSLT regular expressions backtrack.
    return _Plan(etree.XPath(text, smart_strings=False, regexp=False), exponent)


def _scan(tokens: list[tuple[str, str]]) -> tuple[str, int]:
    """(the same XPath with its outermost relative paths made absolute, the exponent of its cost).

    lxml starts relative paths at the root element, where the document stands in XPath: `root/a` would never match.
    """
    written: list[str] = []
    predicates = depth = 0
    # Outside predicates the operands of an operator are visited one after the other: only the dearest counts.
    wide = dearest = 0
    # Whether an operand may begin here; after a / or @ or :: a name is a step, not an operator and not a beginning.
    fresh, step = True, False
    for i, (kind, text) in enumerate(tokens):
        before = tokens[i - 1][0] if i else ""
        after, following = tokens[i + 1] if i + 1 < len(tokens) else ("", "")
        predicates += (text == "[") - (text == "]")
        depth += (text in "([") - (text in ")]") if kind == "sign" else 0
        if depth > MAX_XPATH_NESTING:
            raise FilterRejected("limit", f"an XPath nests at most {MAX_XPATH_NESTING} deep")
        named = kind == "word" or text == "*"
        call = kind == "word" and following == "(" and text not in _NODE_TESTS
        operator = (named and not fresh and not step) or text in _OPERATORS
        if operator and not predicates:
            dearest, wide = max(dearest, wide), 0
        if text == "|" or (text in _COMPARISONS and "constant" not in (before, after)):
            # Two node-sets are merged, or compared, each node of one with each of the other.
            wide, dearest = (wide + 1, dearest) if predicates else (wide, max(dearest, 2))
        wide += text in ("//", "..") or (text == "/" and fresh) or (named and text.startswith(_WIDE_AXES))
        if fresh and not call and not predicates and (named or text in (".", "..", "@")):
            written.append("" if text == "." and following.startswith("/") else "/")
            text = "" if text == "." else text
        written.append(text)
        fresh, step = operator or text in ("(", "[", ","), text in ("/", "//", "@", "::")
    return " ".join(written), max(1, wide, dearest)


def _tokens(expression: str) -> list[tuple[str, str]]:
    """(kind, text) of every token: `constant`, `word` or `sign`."""
    found = [(m.lastgroup or "", m[m.lastgroup or 0]) for m in _TOKEN.finditer(expression)]
    for kind, text in found:
        if kind == "bad":
            raise FilterRejected("syntax", f"not an XPath: {text!r} begins nothing")
        if text == "$":
            raise FilterRejected("inexpressible", "an XPath here has no variables")
    return found
