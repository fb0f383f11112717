"""Where the fields of a certificate are in its bytes: a walk over DER, to flip a bit in each of them."""

from __future__ import annotations

Span = tuple[int, int]


def element(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, and where the content of the element at `at` begins and ends."""
    length, start = data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    return data[at], start, start + length


def children(data: bytes, at: int) -> list[int]:
    _, start, end = element(data, at)
    found = []
    while start < end:
        found.append(start)
        start = element(data, start)[2]
    return found


def content(data: bytes, at: int) -> Span:
    _, start, end = element(data, at)
    return start, end


def of_certificate(der: bytes) -> dict[str, Span]:
    """The content of each field, by name."""
    tbs, outer_algorithm, signature = children(der, 0)
    version, serial, algorithm, issuer, validity, subject, spki, extensions = children(der, tbs)
    before, after = children(der, validity)
    key_algorithm, key = children(der, spki)
    spans = {
        "version": content(der, children(der, version)[0]),
        "serial": content(der, serial),
        "algorithm": content(der, algorithm),
        "issuer": content(der, issuer),
        "not before": content(der, before),
        "not after": content(der, after),
        "subject": content(der, subject),
        "key algorithm": content(der, key_algorithm),
        "key": content(der, key),
        "algorithm again": content(der, outer_algorithm),
        "signature": content(der, signature),
    }
    (sequence,) = children(der, extensions)
    for number, extension in enumerate(children(der, sequence)):
        parts = children(der, extension)
        spans[f"extension {number} identifier"] = content(der, parts[0])
        spans[f"extension {number} value"] = content(der, parts[-1])
        if len(parts) == 3:
            spans[f"extension {number} critical"] = content(der, parts[1])
    return spans
