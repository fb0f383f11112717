"""Loaded at start by every Python process of a driver whose PYTHONPATH names this directory: it hangs at a commit.

PAUSE_AT is COUNT:FILE. The process that commits as the COUNT-th (they are counted in FILE, since each may be another
process) stops before its ledger has looked at anything, as on a machine that hangs. With UNFENCED, its ledgers take
records of any term: what fencing prevents shows on such a driver.
"""

import os
import signal
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


def _arm(module: ModuleType) -> None:
    number, counter = os.environ["PAUSE_AT"].split(":", 1)
    ledger = module.Ledger
    real = ledger.commit

    def commit(self, entry, term=None):  # type: ignore[no-untyped-def]
        with open(counter, "ab") as file:
            file.write(b".")
        if os.path.getsize(counter) == int(number):
            os.kill(os.getpid(), signal.SIGSTOP)
        return real(self, entry, term)

    ledger.commit = commit
    if "UNFENCED" in os.environ:
        ledger._check_term = lambda self, term: None


class _Arming(Loader):
    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        _arm(module)


class _Finder(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        spec = PathFinder.find_spec(name, path, target) if name == "sealcast.log.ledger" else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Arming(spec.loader)
        return spec


if "PAUSE_AT" in os.environ:
    sys.meta_path.insert(0, _Finder())
