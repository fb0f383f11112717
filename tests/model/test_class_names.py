"""One word, one meaning: no two modules give different things the same public name (docs/glossary.md)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "sealcast"

#: Names that several modules may give, each to the same idea, with the reason.
ACCEPTED = {
    "Client": "sealcast.mqtt.Client stands in for Paho's class of that name; the pipeline's is for Spark's options",
    "Opener": "every protection's room has one, in its open.py, and these rooms never import each other",
    "Realm": "clients/realm.py extends the handle of trust/deployment.py, and is the one that `sealcast.Realm` names",
}


def public_classes(source: str) -> set[str]:
    return {
        node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


def shared(modules: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The public class names that more than one of these (path, source) defines, and where."""
    where = defaultdict(list)
    for path, source in modules:
        for name in public_classes(source):
            where[name].append(path)
    return {name: paths for name, paths in where.items() if len(paths) > 1}


def test_a_public_class_name_has_one_meaning() -> None:
    found = shared((str(path.relative_to(SRC)), path.read_text()) for path in sorted(SRC.rglob("*.py")))
    assert {name: paths for name, paths in found.items() if name not in ACCEPTED} == {}
    assert ACCEPTED.keys() <= found.keys(), "an exception that nothing needs any more"


def test_the_search_finds_what_it_looks_for() -> None:
    one, other = "class Standing:\n    pass\n", "from a import b\n\n\n@b\nclass Standing(b):\n    pass\n"
    assert shared([("a.py", one), ("b.py", other)]) == {"Standing": ["a.py", "b.py"]}
    private = "class _Standing:\n    pass\n\n\nclass Outer:\n    class Standing:\n        pass\n"
    assert shared([("a.py", one), ("b.py", private)]) == {}
