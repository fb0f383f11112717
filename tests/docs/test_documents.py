"""What the documents say to type works when it is typed: every fenced block of every document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sealcast import Realm
from sealcast.wire import sealed_texts
from tests.docs.paste import ROOT, RUN, SHOWN, as_said, blocks, documents, paste, to_run
from tests.docs.test_first_steps import README, TUTORIAL

pytestmark = pytest.mark.timeout(600)
#: Pasted by tests of their own, which look at more of what comes out.
ELSEWHERE = (README, TUTORIAL, ROOT / "examples" / "README.md")
PASTED = [page for page in documents() if to_run(page) and page not in ELSEWHERE]

#: What must be among the words that a document's blocks print, beside what its console blocks show themselves.
PRINTS = {
    "docs/searchable.md": ['"payload": "bearing 2"', '"payload": "not wanted"', '"payload": "later"'],
    "docs/spark.md": ["IBM 118.50 nyse", "1 row in the stream", "1 event in columns, price 118.50"],
    "docs/trust/authority.md": ["Serial Number: 01", '"name": "Sealcast authority 3"'],
    "docs/trust/discovery.md": ['"venue": "NYSE"'],
    "docs/trust/key-center.md": [
        "topic 'orders' registered with 'center': 'owner' decides who may use it",
        "taken by this realm",
        "key-center",
    ],
    "docs/mqtt.md": [
        "ann got fire {'zone': 'north', 'heat': 230}",
        "bob got frost {'zone': 'south', 'heat': 3}",
        "3 events in, 2 deliveries, 0 refused",
    ],
    "docs/attribute.md": ["bed 3", "bed 9", "bed 4", *["refused, as it should be"] * 2, "1 pairs: 1 of 1 events"],
    "docs/observe.md": ["dashboard.json", "batch"],
    "docs/deploy.md": ['"status": "ready"', '"payload": "by paris"'],
    "docs/group-keys.md": ["choose ", "keys a subscriber", "different groups"],
}


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", PASTED, ids=name)
def test_every_block_works_when_it_is_pasted(document: Path) -> None:
    pasted = paste(document)
    assert pasted.code == 0, pasted.err
    for command, shown, printed in pasted.said:
        assert as_said(printed) == as_said(shown), command
    wanted = PRINTS.get(name(document), [])
    assert [text for text in wanted if pasted.out.count(text) < wanted.count(text)] == []


@pytest.mark.parametrize("document", documents(), ids=name)
def test_every_block_says_whether_it_is_to_be_typed(document: Path) -> None:
    assert {block.tag for block in blocks(document)} <= {*RUN, *SHOWN}


def test_what_must_be_printed_names_documents_that_exist() -> None:
    assert set(PRINTS) <= {name(document) for document in PASTED}


def test_several_brokers_deliver_each_event_once() -> None:
    """The first event reaches alice and bob, the second alice, who has moved."""
    pasted = paste(ROOT / "docs" / "trust" / "brokers.md")
    events = [json.loads(line) for line in pasted.out.splitlines() if line.startswith("{")]
    assert [event["position"] for event in events] == ["1/0/0", "1/0/0", "0/0/0"]
    assert {event["payload"] for event in events} == {"to everyone"}


def test_discovery_shows_each_what_it_may_find() -> None:
    pasted = paste(ROOT / "docs" / "trust" / "discovery.md")
    assert pasted.out.count("desk.orders ") == 1, "bob sees it, alice does not"
    assert "nothing that 'bob' may find matches 'venue=*'" in pasted.err


def test_the_key_centers_guide_leaves_the_realm_as_it_says() -> None:
    state = Realm(paste(ROOT / "docs" / "trust" / "key-center.md").place / "market").state()
    about = state.topic("orders")
    assert (about.owner, about.epoch, about.parameters.key_bits) == ("owner", 2, 192)
    bobs = state.subscription("bob-1")
    assert bobs.subscriber == "bob" and bobs.filter.startswith(sealed_texts.PREFIX), "its text is sealed to brokers"


def test_the_overlay_is_drawn_as_the_page_shows_it() -> None:
    page = ROOT / "docs" / "trust" / "overlays.md"
    (shown,) = [block.text for block in blocks(page) if block.text.startswith("deals: 2")]
    assert shown.count("\n") == 8 and shown in paste(page).out
    assert (paste(page).place / "market" / "overlay.svg").exists()


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
