"""XPath 1.0 over XML payloads: no entities, no DTD, no network, and a bound on what one expression may cost.

libxml2 offers no clock to stop an expression, so its cost is bounded before it runs, by what an adversary could make of
the payload. Where the bound is beyond the limit, the answer is unknown. In a payload of n nodes and b bytes, nested d
deep, an expression

    visits        each of its steps at most n**k nodes, where k counts what multiplies: //, .., the axes that leave the
                  subtree, absolute paths, unions, and comparisons of two node-sets
    reads         with each function of strings, and each comparison, at most all strings of n nodes, which are b * d
                  bytes, instead of n nodes; and each byte once for every byte that is looked for
"""

from __future__ import annotations

import re
from itertools import pairwise
from types import ModuleType
from typing import Any, Final, NamedTuple

from sealcast.errors import FilterRejected
from sealcast.filters.limits import (
    MAX_COMPILED_BYTES,
    MAX_XML_BYTES,
    MAX_XPATH_LENGTH,
    MAX_XPATH_NESTING,
    MAX_XPATH_WORK,
)
from sealcast.filters.remembered import Remembered

#: libxml2 compiles an expression to a few operations a character, and takes none that nests deeper.
_CHARACTER_BYTES: Final = 1_024
_DEEPEST: Final = 256
#: Units of work for making a node's string. A node that a step visits, and a byte that is compared, take one each.
_STRING: Final = 16
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
#: Functions that read no strings.
_STRINGLESS: Final = frozenset(
    ("position", "last", "count", "true", "false", "not", "boolean", "floor", "ceiling", "round", "local-name", "name")
)
#: Functions that take their time for every byte of one string times every byte of another.
_SEEKERS: Final = frozenset(("contains", "translate", "substring-before", "substring-after"))


class _Plan(NamedTuple):
    run: Any
    #: The k of the module's docstring, and how many steps visit so much.
    exponent: int
    steps: int
    #: Functions of strings and comparisons.
    readers: int
    #: Bytes that are looked for, at most; None: as many as a node's string has.
    sought: int | None
    #: How many strings `concat` may join into one.
    joined: int

    def work(self, nodes: int, size: int, depth: int) -> int:
        """Units of work on a payload, at most."""
        string = size * self.joined
        strings = string * depth * (string if self.sought is None else self.sought)
        return int(nodes ** (self.exponent - 1) * (self.steps * nodes + self.readers * (strings + _STRING * nodes)))


def check_expression(expression: str, at: int) -> str:
    """The expression itself, once it is known to be short, flat and valid, without variables or unknown functions."""
    if len(expression) > MAX_XPATH_LENGTH:
        raise FilterRejected("limit", f"an XPath has at most {MAX_XPATH_LENGTH} characters", at=at)
    etree = _lxml()
    try:
        # Tried once on a document of one element: that finds unknown functions and prefixes, too.
        compiled_xpaths(expression).run(etree.Element("x"))
    except FilterRejected as error:
        error.at = at
        raise
    except (etree.XPathError, ValueError) as error:
        hint = "namespaces have no prefixes here; use local-name()" if "prefix" in str(error) else None
        raise FilterRejected("syntax", f"not an XPath: {error}", at=at, hint=hint) from None
    return expression


class Document:
    """A payload parsed once, for all the XPaths asked of it."""

    __slots__ = ("_depth", "_nodes", "_payload", "_root")

    def __init__(self, root: Any, payload: bytes) -> None:
        self._root, self._payload = root, payload
        # An element brings a < of its own, a text follows some <, an attribute brings a =; long texts cost by length.
        self._nodes = 2 * payload.count(b"<") - payload.count(b"</") + payload.count(b"=") + len(payload) // 32
        #: Worked out when it is first asked for.
        self._depth = 0

    @classmethod
    def parse(cls, payload: bytes) -> Document | None:
        """None for what is too long, not well-formed, or brings a DTD: such a payload makes every XPath unknown."""
        if not 0 < len(payload) <= MAX_XML_BYTES or b"<!DOCTYPE" in payload:
            return None
        etree = _lxml()
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
        # They may hide nodes, too: what is counted are the bytes of an encoding in which a < is a <.
        encoding = (root.getroottree().docinfo.encoding or "UTF-8").upper()
        plain = encoding in ("UTF-8", "ASCII", "US-ASCII")
        return cls(root, payload if plain else etree.tostring(root.getroottree()))

    def work(self, expression: str) -> int | None:
        """Units of work that the expression takes here, at most; None if that is too much to try."""
        plan = compiled_xpaths(expression)
        if plan.readers and not self._depth:
            self._depth = _depth(self._payload)
        units = plan.work(self._nodes, len(self._payload), self._depth)
        return units if units <= MAX_XPATH_WORK else None

    def matches(self, expression: str) -> bool | None:
        """As XPath's own `boolean`: true for a node-set or a string that is not empty, a number that is not zero or
        NaN."""
        if self.work(expression) is None:
            return None
        try:
            return bool(compiled_xpaths(expression).run(self._root))
        except (_lxml().XPathError, ValueError):
            return None


def _lxml() -> ModuleType:
    """libxml2. Every command that knows filters loads this file, and few of them meet an XPath."""
    from lxml import etree

    loaded: ModuleType = etree
    return loaded


def _depth(payload: bytes) -> int:
    """How deep elements are nested, at most."""
    import numpy as np

    given = np.frombuffer(payload, np.uint8)
    opens = np.flatnonzero(given[:-1] == ord("<"))
    after = given[opens + 1]
    ends, alone = opens[after == ord("/")], np.flatnonzero((given[:-1] == ord("/")) & (given[1:] == ord(">")))
    begins = opens[(after != ord("/")) & (after != ord("?"))]
    # Every element ends, by a tag or alone. If that does not come out even, some of it is not markup.
    hiding = b"<!" in payload or payload.count(b"<?") > payload.startswith(b"<?xml ")
    if hiding or begins.size != ends.size + alone.size:
        return min(_DEEPEST, int(ends.size) + 1)
    turns = np.zeros(given.size + 1, np.int64)
    turns[begins] = 1
    turns[np.concatenate((ends, alone))] = -1
    return int(np.cumsum(turns).max(initial=1))


def _plan(expression: str) -> _Plan:
    """The expression compiled to start at the document, as XPath's users expect, and its cost."""
    tokens = _tokens(expression)
    text, exponent = _scan(tokens)
    words = [token for kind, token in tokens if kind == "word"]
    calls = [a for (kind, a), (_, b) in pairwise(tokens) if kind == "word" and b == "("]
    readers = [call for call in calls if call not in _STRINGLESS | _NODE_TESTS]
    constants = [len(token.encode()) for kind, token in tokens if kind == "constant"]
    return _Plan(
        # regexp=False: the EXSLT regular expressions backtrack.
        run=_lxml().XPath(f"boolean({text})", smart_strings=False, regexp=False),
        exponent=exponent,
        steps=len(words) + sum(token in ("*", ".", "..", "/", "//") for _, token in tokens),
        readers=len(readers) + sum(token in _COMPARISONS for _, token in tokens),
        sought=max([1, *constants]) if _seeks_constants(tokens) else None,
        joined=1 + sum(token == "," for _, token in tokens) if "concat" in calls else 1,
    )


def _seeks_constants(tokens: list[tuple[str, str]]) -> bool:
    """Whether functions that look for one string in another look for constants."""
    within: list[str] = []
    for i, (_, text) in enumerate(tokens):
        if text == "(":
            within.append(tokens[i - 1][1] if i else "")
        elif text == ")" and within:
            within.pop()
        elif text == "," and within and within[-1] in _SEEKERS:
            kinds, texts = zip(*tokens[i + 1 : i + 3], ("", ""), ("", ""), strict=True)
            if kinds[0] != "constant" or texts[1] not in (",", ")"):
                return False
    return True


#: By expression.
compiled_xpaths: Final = Remembered(
    _plan, lambda expression, _: _CHARACTER_BYTES * (len(expression) + 1), MAX_COMPILED_BYTES
)


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
        # Every element has nodes of its own for all namespaces that are declared around it.
        wide += 2 * (text == "namespace" and following == "::")
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
