"""Running commands as a user would: in this process where speed matters, in their own where processes matter."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealcast.cli.main import main

SEALCAST = (sys.executable, "-c", "from sealcast.cli.main import main; main()")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout as the one JSON document it must be."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def sealcast(*arguments: object) -> Result:
    """One command, in this process, through the same `main` as the real one."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(a) for a in arguments])
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Result(code, out.getvalue(), err.getvalue())


def spawn(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """One command, in a process of its own, talked to through pipes."""
    pipe = subprocess.PIPE
    defaults: dict[str, Any] = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True}
    return subprocess.Popen([*SEALCAST, *map(str, arguments)], **(defaults | options))


def write_lines(path: Path, *documents: object) -> Path:
    path.write_text("".join((d if isinstance(d, str) else json.dumps(d)) + "\n" for d in documents))
    return path
