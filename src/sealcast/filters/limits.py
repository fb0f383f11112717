"""What a filter may cost at most. Everything here is refused with kind `limit`, by name, before it is paid for.

The standards leave the limits to the implementer; RabbitMQ allows 4,096 characters and 200 tokens. Ours leave room for
long IN lists, since those are cheap to match by hashing.
"""

from __future__ import annotations

from typing import Final

#: Code points of a filter's text, all formats.
MAX_TEXT_LENGTH: Final = 16_384
#: Words, operators and constants of an SQL filter.
MAX_TOKENS: Final = 4_096
#: Parentheses, NOTs and signs inside each other. The parser needs at most seven Python frames for each.
MAX_NESTING: Final = 64
#: Nodes from the root of the tree to its deepest leaf; `a + b + c` counts too. Evaluation needs two frames for each.
MAX_DEPTH: Final = 128
#: Nodes of a tree, weighed by what evaluating them costs beside a comparison; see `cost.py`.
MAX_COST: Final = 8_192
#: Values in one IN list.
MAX_IN_ITEMS: Final = 1_024
#: Code points of one LIKE pattern.
MAX_LIKE_LENGTH: Final = 1_024
#: Code points of one regular expression.
MAX_REGEX_LENGTH: Final = 1_024
#: Bytes that RE2 may use for one pattern, compiled form and state cache together.
MAX_REGEX_MEMORY: Final = 1 << 20
#: Bytes that a process keeps of compiled patterns of each kind, each counted with all that it may come to use.
MAX_COMPILED_BYTES: Final = 1 << 28
#: Instructions of a regular expression compiled: a text is matched in at most its length times these.
MAX_REGEX_PROGRAM: Final = 4_000
#: Code points of a text that a function makes; a longer one is NULL.
MAX_COMPUTED_TEXT: Final = 1 << 16
#: Digits that ROUND rounds to, on either side of the point; beyond them it is NULL.
MAX_ROUND_DIGITS: Final = 18
#: Characters of a number, as written.
MAX_NUMBER_LENGTH: Final = 64
#: Levels of a path.
MAX_PATH_LEVELS: Final = 64
#: Tags of a template.
MAX_TAGS: Final = 128
#: Code points of an XPath expression.
MAX_XPATH_LENGTH: Final = 512
#: Open brackets and parentheses in an XPath expression: libxml2 parses it recursively.
MAX_XPATH_NESTING: Final = 16
#: Bytes of a payload that an XPath is tried on; a longer one is unknown.
MAX_XML_BYTES: Final = 1 << 18
#: Work that one XPath may need on one payload, by the estimate of `xpath.py`; a dearer one is unknown. A unit of work
#: is a few nanoseconds (`work.py`).
MAX_XPATH_WORK: Final = 50_000_000
#: Bytes of one line of `filter eval --cases`.
MAX_CASE_LENGTH: Final = 1 << 20
#: Digits of a whole number in a case's attributes.
MAX_CASE_DIGITS: Final = 400
