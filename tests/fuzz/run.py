"""Coverage-guided fuzzing of one target, or of all: `make fuzz`, or python -m tests.fuzz.run [TARGET] [SECONDS].

It needs atheris, which has wheels for Linux on x86-64. What it learns is kept in .fuzz/, which is not in the tree; an
input that shows a bug belongs into tests/fuzz/corpus/TARGET, where `make test` tries it from then on.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

KEPT: Final = Path(__file__).parents[2] / ".fuzz"
_SECONDS: Final = 30


def guided(name: str, seconds: int) -> None:
    """Does not return: the fuzzer ends the process, with 0 if it found nothing."""
    try:
        import atheris
    except ModuleNotFoundError:
        sys.exit("atheris is not installed, or has no wheel for this machine: uv sync --all-extras --group fuzz")
    with atheris.instrument_imports(include=["sealcast"], enable_loader_override=False):
        from tests.fuzz import targets

    learnt, given = KEPT / name, KEPT / f"{name}-seeds"
    for directory in (learnt, given):
        directory.mkdir(parents=True, exist_ok=True)
    for seed in targets.seeds(name):
        (given / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    options = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", f"-artifact_prefix={KEPT}/{name}-"]
    atheris.Setup([sys.argv[0], *options, str(learnt), str(given)], lambda data: targets.run(name, data))
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    if arguments and not arguments[0].isdigit():
        guided(arguments[0], int(arguments[1]) if len(arguments) > 1 else _SECONDS)
    from tests.fuzz.targets import TARGETS

    failed = []
    for name in TARGETS:
        print(f"--- {name}", flush=True)
        seconds = arguments[0] if arguments else str(_SECONDS)
        if subprocess.run([sys.executable, "-m", "tests.fuzz.run", name, seconds], check=False).returncode:
            failed.append(name)
    print(f"findings, with their inputs in {KEPT}: {', '.join(failed)}" if failed else "no findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
