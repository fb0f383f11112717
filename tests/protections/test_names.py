"""Nobody outside a protection's room and the table asks for its name."""

from __future__ import annotations

import re
from pathlib import Path

from sealcast.model.protection import PROTECTIONS

SRC = Path(__file__).parents[2] / "src" / "sealcast"
#: `payload` is also what an event carries: as a string it is a protection's name only beside that word.
_NAMES = "|".join(name for name in PROTECTIONS if name != "payload")
_CLASSES = "|".join(kind.__name__ for kind in PROTECTIONS.values())
#: Comparing with a name or a class, or naming one in a string that is compared or looked up.
FORK = re.compile(
    rf"""([=!]=|\bin\b)\s*\(?["']({_NAMES})["']|["']({_NAMES})["']\s*([=!]=|in\b)|protection\.name\s*[=!]="""
    rf"""|isinstance\([^)]*\b({_CLASSES})\b|case\s+({_CLASSES})\(|case\s+["']({_NAMES})["']"""
)


PAYLOAD = re.compile(r"""protection.*[=!]=\s*["']payload["']|["']payload["']\s*[=!]=.*protection""")


def forks(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if not line.startswith("#") and (FORK.search(line) or PAYLOAD.search(line))]


def test_nobody_asks_for_a_protections_name() -> None:
    found = {
        str(path.relative_to(SRC)): forks(path.read_text())
        for path in SRC.rglob("*.py")
        if path.relative_to(SRC).parts[0] != "protections" or path.relative_to(SRC).parts[1] not in PROTECTIONS
        if path != SRC / "model" / "protection.py"
    }
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_search_finds_what_it_looks_for() -> None:
    for line in (
        'if topic.protection == "layered":',
        'if protection.name != "endpoint":',
        "if isinstance(about.protection, Layered):",
        'if name in ("layered", "endpoint"):',
        "case Layered(layers=r):",
        'if topic.protection.name == "payload":',
    ):
        assert forks(line), line
    for line in (
        "protection: Protection = DEFAULT_PROTECTION",
        'f"{topic} is {protection.name}"',
        "if protection.overlay:",
    ):
        assert not forks(line), line
