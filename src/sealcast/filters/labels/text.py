"""Strings on a line, digit by digit, so that order, prefixes and equality are all subtrees of one trie.

A text is written in digits, and the digits of texts are ordered as the texts are:

    the end of the text      0
    an ASCII character c     1 + c // 16, c % 16
    any other                9, and six hexadecimal digits of its code point, surrogates not counted

A trie of code points would do for prefixes, but `s > 'm'` would take a million of its subtrees; one of bits would
make every event carry eight labels a character. Sixteen is between: an event has two labels an ASCII character, and
a bound at most some fifteen each. (Paper 003 maps strings to numbers for ranges and uses tries for prefixes; one trie
does both here.) Where a text ends, its own label (space E) stands for the end, so that equality needs no depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sealcast.filters.vector.intervals import TOP, Interval, TextKey

Digits = tuple[int, ...]
#: From one place in the order of texts up to another; None is the end of all.
Stretch = tuple[Digits, Digits | None]

END: Final = 0
_OTHER: Final = 9
_HEX: Final = 6
_GAP: Final = (0xD800, 0xE000)
_WIDTH: Final = _GAP[1] - _GAP[0]
_LEAST: Final = 0x80
_GREATEST: Final = 0x10FFFF - _WIDTH


def digits(text: str) -> Digits:
    """The text without its end. A lone surrogate, which no event's text has, stands where the next character does."""
    found: list[int] = []
    for char in text:
        point = ord(char)
        if point < _LEAST:
            found += (1 + (point >> 4), point & 15)
            continue
        is_surrogate = _GAP[0] <= point < _GAP[1]
        point = _GAP[0] if is_surrogate else point - _WIDTH if point >= _GAP[1] else point
        found.append(_OTHER)
        found += [point >> shift & 15 for shift in range(4 * (_HEX - 1), -1, -4)]
        if is_surrogate:
            break
    return tuple(found)


def carried(text: str, depth: int) -> Digits:
    """The digits that an event's text has labels for: of its first characters, and the first digit of the next.

    With it, a bound of `depth` characters can tell the text itself from the longer ones that it begins."""
    found = digits(text[:depth])
    return found if len(text) <= depth else (*found, digits(text[depth])[0])


def stretch(interval: Interval) -> Stretch:
    """An interval of texts as digits, from the first inclusive to the second exclusive."""
    low, high = interval
    return _from(low), None if high == TOP else _up_to(high)


def _from(key: TextKey) -> Digits:
    text, after = digits(key[1]), key[2] > 0
    return (*text, END + 1) if after else _least(text)


def _up_to(key: TextKey) -> Digits:
    text, before = digits(key[1]), key[2] < 0
    return _least(text) if before else (*text, END + 1)


def _least(found: Digits) -> Digits:
    """Without zeros at the end: zero is the least digit everywhere, so what begins there begins one level above."""
    while found and found[-1] == 0:
        found = found[:-1]
    return found


def cover(stretches: Iterable[Stretch]) -> list[Digits]:
    """The fewest subtrees that hold these texts and no others. A subtree that ends in END is one text."""
    joined = _joined(stretches)
    # Nothing that is wanted touches such a text, so no larger subtree can hold it: the way down to it is spared.
    alone = {each: text for each in joined if (text := _only_text(each)) is not None}
    full, found = _cover((), [each for each in joined if each not in alone])
    return [()] if full else sorted([*found, *((*text, END) for text in alone.values())])


def _only_text(stretch: Stretch) -> Digits | None:
    """The digits of the text, without its end, if a stretch holds one text and nothing else."""
    low, high = stretch
    if high is None or high[-1] != END + 1:
        return None
    text = high[:-1]
    return text if _least(text) == low and not _partial(text) else None


def _joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    joined: list[Stretch] = []
    for low, high in sorted(stretches, key=lambda s: s[0]):
        last = joined[-1][1] if joined else ()
        if joined and (last is None or low <= last):
            joined[-1] = joined[-1][0], None if last is None or high is None else max(last, high)
        elif high is None or low < high:
            joined.append((low, high))
    return joined


def _cover(node: Digits, wanted: Sequence[Stretch]) -> tuple[bool, list[Digits]]:
    """Whether every text below the node is wanted; if not, the subtrees that are. As deep as the bounds are long."""
    after = (*node[:-1], node[-1] + 1) if node else None
    met = [(low, high) for low, high in wanted if (after is None or low < after) and (high is None or node < high)]
    if not met:
        return False, []
    if any(low <= node and (high is None or (after is not None and after <= high)) for low, high in met):
        return True, []
    if is_text(node):
        return True, []  # a text is a point: what meets it holds it
    every, found = True, []
    for child in children(node):
        full, below = _cover(child, met)
        every &= full
        found += [child] if full else below
    return every, [] if every else found


def children(node: Digits) -> Iterator[Digits]:
    """The nodes right below that some text has."""
    partial = _partial(node)
    if not partial:
        for digit in range(END, _OTHER + 1):
            yield (*node, digit)
    elif partial[0] != _OTHER:
        for digit in range(16):
            yield (*node, digit)
    else:
        left = _HEX - len(partial)  # digits after the next one
        value = 0
        for digit in partial[1:]:
            value = value << 4 | digit
        for digit in range(16):
            low = (value << 4 | digit) << 4 * left
            if low <= _GREATEST and low + (1 << 4 * left) > _LEAST:
                yield (*node, digit)


def characters(node: Digits) -> int:
    """How many characters the node has digits of, the last of them perhaps not all."""
    at = found = 0
    while at < len(node) and node[at] != END:
        at += 1 + _HEX if node[at] == _OTHER else 2
        found += 1
    return found


def _partial(node: Digits) -> Digits:
    """The digits of the last character if it is not complete."""
    at = 0
    while at < len(node):
        size = 1 + _HEX if node[at] == _OTHER else 1 if node[at] == END else 2
        if at + size > len(node):
            return node[at:]
        at += size
    return ()


def spelled(node: Digits) -> str:
    """The text that complete digits spell."""
    found, at = [], 0
    while at < len(node) and node[at] != END:
        if node[at] == _OTHER:
            point = 0
            for digit in node[at + 1 : at + 1 + _HEX]:
                point = point << 4 | digit
            found.append(chr(point + _WIDTH if point >= _GAP[0] else point))
            at += 1 + _HEX
        else:
            found.append(chr((node[at] - 1) << 4 | node[at + 1]))
            at += 2
    return "".join(found)


def is_node(node: Digits) -> bool:
    """Whether texts have these digits, and longer ones do, too."""
    steps = (node[: end + 1] for end in range(len(node)))
    return all(step in children(step[:-1]) and not is_text(step) for step in steps)


def is_text(node: Digits) -> bool:
    """Whether the subtree is one text."""
    return bool(node) and node[-1] == END and not _partial(node[:-1])
