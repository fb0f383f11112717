"""Known advisories against everything that the lock file names: `make audit`, or python -m tests.advisories.

It asks PyPI, which knows the Python Packaging Advisory Database. Where PyPI cannot be asked, or not about a release, it
says so and fails: no answer is no clean bill. `uv audit` asks another database (OSV) about the same lock file.
"""

from __future__ import annotations

import json
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

LOCK: Final = Path(__file__).parents[1] / "uv.lock"
_TIMEOUT: Final = 30
_AT_ONCE: Final = 8
_SHOWN: Final = 5
#: What PyPI says of one release; OSError when it cannot be asked.
Ask = Callable[[str, str], Any]


class KnownAdvisory(NamedTuple):
    package: str
    version: str
    id: str
    summary: str
    fixed_in: tuple[str, ...]


def locked(lock: Path = LOCK) -> list[tuple[str, str]]:
    """Name and version of everything from an index."""
    packages = tomllib.loads(lock.read_text())["package"]
    return sorted((p["name"], p["version"]) for p in packages if "registry" in p.get("source", {}))


def from_pypi(name: str, version: str) -> Any:
    with urllib.request.urlopen(f"https://pypi.org/pypi/{name}/{version}/json", timeout=_TIMEOUT) as answer:
        return json.load(answer)


def advisories(name: str, version: str, ask: Ask) -> Iterator[KnownAdvisory]:
    """Those that stand: one that was withdrawn is none."""
    for found in ask(name, version).get("vulnerabilities") or ():
        if not found.get("withdrawn"):
            summary = (found.get("summary") or found.get("details") or "").strip().partition("\n")[0]
            yield KnownAdvisory(name, version, found["id"], summary[:200], tuple(found.get("fixed_in") or ()))


def main(lock: Path = LOCK, ask: Ask = from_pypi) -> int:
    """0 if nothing is known against anything, 1 if something is, 2 if that could not be found out."""
    packages, known, unknown = locked(lock), list[KnownAdvisory](), list[str]()

    def asked(package: tuple[str, str]) -> list[KnownAdvisory] | str:
        try:
            return list(advisories(*package, ask))
        except (OSError, ValueError, KeyError) as error:
            return f"{' '.join(package)}: nothing is known, because PyPI could not be asked: {error}"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for found in pool.map(asked, packages):
            if isinstance(found, str):
                unknown.append(found)
            else:
                known += found
    for advisory in known:
        fixed = f"; fixed in {', '.join(advisory.fixed_in)}" if advisory.fixed_in else ""
        print(f"{advisory.package} {advisory.version}: {advisory.id}: {advisory.summary}{fixed}")
    print(*unknown[:_SHOWN], sep="\n", end="\n" * bool(unknown), file=sys.stderr)
    print(f"{len(packages)} packages, {len(known)} advisories, {len(unknown)} packages of which nothing is known")
    return 1 if known else 2 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
