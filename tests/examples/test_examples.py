"""Every example runs by itself, as examples/README.md says, and prints what its reader is told to expect."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.docs.paste import ROOT, paste

EXAMPLES = ROOT / "examples"

#: The lines that each program prints, in the order in which the README runs them.
SAYS = {
    "market.py": [
        r"refused: event 0: attribute 'price': 118\.505 is off the grid of step 0\.01",
        r"alice +125 events where symbol = 'IBM' AND price < 120",
        r"bob +258 events where .*",
        r"carol +248 events where .*",
        r"dave +0 events where price > 999",
        r"[\d,]+ deliveries took [\d,]+ encryptions",
    ],
    "hospital.py": [
        r"Everyone reads what it asked for:",
        r"  cardiology-screen +reads patients \[11, 12\]",
        r"  maternity-screen +reads patients \[31, 32\]",
        r"  emergency-team +reads patients \[12, 32\]",
        r"After the emergency team lost its right:",
        r"  cardiology-screen +reads patients \[11, 12\]",
        r"  maternity-screen +reads patients \[31, 32\]",
        r"  emergency-team +is refused: entity 'emergency-team' may not subscribe on topic 'vitals'",
    ],
    "wards.py": [
        r"Every ward opens what it asked for, within what it may read:",
        r"  north-icu +opens icu 41, icu 0",
        r"  south-er +opens er-2 182",
        r"  coroner +opens icu 0",
        r"South cannot publish for north: event 0: this publisher may not publish an event with .* of 'hospital'",
        r"After the coroner left:",
        r"  north-icu +opens icu 41, icu 0",
        r"  south-er +opens er-2 182",
        r"  coroner +is refused: entity 'coroner' may not subscribe on topic 'vitals'",
    ],
    "from_spark.py": [r"fleet: truck-2 drives 131 km/h at 48\.1,11\.5"],
}


@pytest.mark.timeout(600)
def test_the_examples_say_what_they_should() -> None:
    pasted = paste(EXAMPLES / "README.md")
    assert pasted.code == 0, pasted.err
    wanted = [line for said in SAYS.values() for line in said]
    lines = pasted.out.splitlines()
    assert len(lines) == len(wanted), pasted.out
    for line, pattern in zip(lines, wanted, strict=True):
        assert re.fullmatch(pattern, line), line
    (deliveries, encryptions) = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", lines[5]))
    assert encryptions < deliveries / 10, "group keys save encryptions, as the example says"
    assert all(entry.is_symlink() for entry in pasted.place.iterdir()), "an example leaves nothing behind"


def test_the_example_without_brokers_says_what_it_should() -> None:
    """It needs no Spark, so that an example runs every day."""
    done = subprocess.run([sys.executable, EXAMPLES / "wards.py"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    for line, pattern in zip(done.stdout.splitlines(), SAYS["wards.py"], strict=True):
        assert re.fullmatch(pattern, line), line


def test_every_program_is_tried_and_listed() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == set(SAYS)
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"({name})" in listed and f"python examples/{name}" in listed for name in programs)


@pytest.mark.parametrize("name", SAYS)
def test_an_example_uses_what_is_public(name: str) -> None:
    tree = ast.parse((EXAMPLES / name).read_text())
    taken = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    # A session and `register` are what docs/spark.md gives to Spark jobs.
    public = {"sealcast", "sealcast.pipeline", "sealcast.pipeline.session"} if "spark" in name else {"sealcast"}
    assert {module for module in taken if module.startswith("sealcast")} <= public
