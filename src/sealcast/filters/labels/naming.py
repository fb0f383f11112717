"""The bytes of a label, and how deep labels go.

    label = length of the attribute's name u16 | its name (UTF-8) | space, a letter | path

    R   the root: every event has it, whatever the attribute is and even where it is absent
    N   a block of places:       bits u8 | the prefix, u64
    T   a subtree of texts:      its digits, a byte each; of no digits: there is a text
    E   one text:                the text (UTF-8)
    S   texts with this ending:  the ending (UTF-8)

Names depend on the schema alone, not on topic or epoch: whoever encrypts labels hashes them together with both.
Different labels have different bytes: the name's length is there, a letter says how to read the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sealcast.errors import Misuse

ROOT: Final = b"R"
BLOCK: Final = b"N"
SUBTREE: Final = b"T"
EXACT: Final = b"E"
SUFFIX: Final = b"S"

#: After a string's name: where its endings are apart from the string, as an attribute of their own. No attribute has
#: brackets in its name.
ENDING_MARK: Final = "[ending]"

#: What an event's labels cost is paid at every hop of every event; what is rarely asked for need not be there.
DEFAULT_DEPTH: Final = 32
MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True)
class StringPlan:
    """How many characters of a string have labels of their own: from its beginning (prefixes and order), and from its
    end (suffixes). Equality needs none, however long the string. A topic's publishers and subscribers share one plan.
    """

    text: int = DEFAULT_DEPTH
    suffix: int = DEFAULT_DEPTH

    def __post_init__(self) -> None:
        for depth in (self.text, self.suffix):
            if not 0 <= depth <= MAX_DEPTH:
                raise Misuse(f"labels go 0 to {MAX_DEPTH} characters deep, not {depth}")


def head(attribute: str) -> bytes:
    name = attribute.encode()
    return len(name).to_bytes(2, "big") + name


def root(attribute: str) -> bytes:
    return head(attribute) + ROOT


def block(attribute: str, bits: int, prefix: int) -> bytes:
    return head(attribute) + BLOCK + bytes((bits,)) + prefix.to_bytes(8, "big")


def blocks(attribute: str, bits: int, prefixes: Iterable[int]) -> list[bytes]:
    """`block` of each prefix of one length."""
    start = head(attribute) + BLOCK + bytes((bits,))
    return [start + prefix.to_bytes(8, "big") for prefix in prefixes]


def subtree(attribute: str, digits: Sequence[int]) -> bytes:
    return head(attribute) + SUBTREE + bytes(digits)


def exact(attribute: str, text: str) -> bytes:
    return head(attribute) + EXACT + text.encode()


def suffix(attribute: str, ending: str) -> bytes:
    return head(attribute) + SUFFIX + ending.encode()


def parts(label: bytes) -> tuple[str, bytes]:
    """The attribute and the space of a label that was made here."""
    end = 2 + int.from_bytes(label[:2], "big")
    return label[2:end].decode(), label[end : end + 1]
