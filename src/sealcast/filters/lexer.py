"""Text -> tokens, by one compiled expression: every character of a filter is looked at once.

The union of what Jakarta Messaging, AMQP (RabbitMQ), ActiveMQ and Qpid read:

    strings    'it''s' and "a""b"                   a doubled quote stands for itself, a backslash is just a backslash
    names      price  JMSType  $a  _b  p.to  x:y    letters of any script; [any thing], with [[ and ]] for brackets
    numbers    57  57L  1_000  0x1F  0b101  017     whole, in Java's notations
               5.  .5  1e3  1.5E-3f  2d  0x1p3      approximate, in Java's notations
    comments   /* ... */  and  -- ... up to a line's end (as ActiveMQ and Broker-J read them)
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sealcast.errors import FilterRejected
from sealcast.filters.limits import MAX_NUMBER_LENGTH, MAX_TOKENS
from sealcast.model.schema import MAX_NAME_LENGTH

KEYWORDS: Final = frozenset(["AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"])

_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\n\r\f\v]+ | /\*(?s:.*?)\*/)
      | (?P<word>[^\W\d][\w$.:]* | \$[\w$.:]*)
      | (?P<number>
            0[xX][0-9a-fA-F][0-9a-fA-F_]*(?:[pP][+-]?[0-9]+[fFdD]?|[lL])?
          | 0[bB][01][01_]*[lL]?
          | (?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?[lLfFdD]?
        )
      | (?P<comment>/\*)
      | (?P<op><>|!=|<=|>=|[=<>+\-*/%(),])
      | (?P<string>'[^']*+(?:''[^']*+)*+' | "[^"]*+(?:""[^"]*+)*+")
      | (?P<name>\[(?:[^\[\]]|\[\[|\]\])*\])
      | (?P<bad>(?s:.))""",
    re.VERBOSE,
)
_LINE_END: Final = re.compile(r"[\r\n]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class Lexeme(NamedTuple):
    """`kind` is a keyword, an operator, or one of NAME, WORD, NUMBER, STRING, END."""

    kind: str
    #: Of a string or a quoted name: what it stands for. Else the text itself.
    value: str
    at: int
    end: int


def tokens(text: str, start: int = 0) -> list[Lexeme]:
    """All tokens and an END; FilterRejected for a character that begins none."""
    found: list[Lexeme] = []
    scan, end, stop = _TOKEN.match, start, len(text)
    # A `--` comment needs its line end: without one `6--5` is arithmetic to every system of the union.
    last_line_end = max(text.rfind("\n"), text.rfind("\r"))
    while end < stop:
        match = scan(text, end)
        assert match is not None
        group = match.lastgroup
        at, end = match.span()
        if group == "blank":
            continue
        kind = value = match.group()
        if group == "word":
            upper = value.upper()
            kind = upper if upper in KEYWORDS else "WORD"
            if end - at > MAX_NAME_LENGTH:
                raise FilterRejected("limit", f"a name has at most {MAX_NAME_LENGTH} characters", at=at)
        elif group == "number":
            kind = "NUMBER"
            if end - at > MAX_NUMBER_LENGTH:
                raise FilterRejected("limit", f"a number has at most {MAX_NUMBER_LENGTH} characters", at=at)
        elif group == "string":
            kind, value = "STRING", value[1:-1].replace(value[0] * 2, value[0])
        elif group == "name":
            kind, value = "NAME", _unquoted(value, at)
        elif group != "op":
            raise _refused(text, at)
        elif value == "!=":
            kind = "<>"
        elif value == "-" and at < last_line_end and text.startswith("--", at):
            comment = _LINE_END.search(text, at)
            assert comment is not None
            end = comment.end()
            continue
        if len(found) == MAX_TOKENS:
            raise FilterRejected("limit", f"a filter has at most {MAX_TOKENS} words and signs", at=at)
        found.append(Lexeme(kind, value, at, end))
    found.append(Lexeme("END", "", stop, stop))
    return found


def _unquoted(quoted: str, at: int) -> str:
    name = quoted[1:-1].replace("[[", "[").replace("]]", "]")
    if len(name) > MAX_NAME_LENGTH:
        raise FilterRejected("limit", f"a name has at most {MAX_NAME_LENGTH} characters", at=at)
    if _CONTROL.search(name):
        raise FilterRejected("syntax", "a name has no control characters", at=at)
    return name


def _refused(text: str, at: int) -> FilterRejected:
    char = text[at]
    if char == "/":
        return FilterRejected("syntax", "the comment that begins here has no closing */", at=at)
    if char in "'\"":
        return FilterRejected("syntax", f"the string that begins here has no closing {char}", at=at)
    if char == "[":
        return FilterRejected(
            "syntax", "the name that begins here has no closing ]", at=at, hint="[[ and ]] stand for brackets in a name"
        )
    hint = {
        "\N{LEFT SINGLE QUOTATION MARK}": "strings are quoted by ' or \"",
        "\N{LEFT DOUBLE QUOTATION MARK}": "strings are quoted by ' or \"",
        "&": "write AND",
        "|": "write OR",
        "!": "write NOT, or != for unequal",
        "`": "names are quoted by [ ]",
    }.get(char)
    return FilterRejected("syntax", f"{char!r} begins nothing in this language", at=at, hint=hint)
