"""What the documents on single protections say to type works when it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PROTECTIONS, check_pasted, name
from tests.docs.paste import ROOT, paste

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("document", PROTECTIONS, ids=name)
def test_every_block_works_when_it_is_pasted(document: Path) -> None:
    check_pasted(document)


#: What a subscriber of the layered quickstart can do besides: in a program, and from Spark.
AFTER_THE_WALK = """
from sealcast import Realm, Subscriber
from sealcast.pipeline.session import session
from sealcast.protections.layered.interests import LayeredInterests

realm = Realm("market")
with LayeredInterests(realm, "quotes", "bob") as interests, Subscriber(realm, "quotes", as_="bob", from_="0") as bob:
    print(interests.cost("price > 100 AND symbol LIKE 'A%'").labels > 1)
    for event in bob:
        print(event.payload, interests.matching(event))
spark = session("local[1]", short_lived=True)
read = spark.read.format("sealcast").options(realm="market", topic="quotes", **{"as": "alice"}).load()
print([bytes(row.payload) for row in read.collect()])
"""


def test_after_the_layered_walk() -> None:
    pasted = paste(ROOT / "docs" / "layered-quickstart.md")
    assert pasted.out.count('"payload": "an apple"') == 1
    # In a process of its own: the keys are locked by what is in the shell's home, and Spark's workers must find it.
    done = subprocess.run(
        [sys.executable, "-c", AFTER_THE_WALK],
        cwd=pasted.place,
        env={"HOME": str(pasted.place.parent), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "True",
        "b'hello' ['bob-1']",
        "b'an apple' ['bob-1', 'bob-2']",
        "b'too dear' ['bob-1']",
        "[b'hello']",
    ]
