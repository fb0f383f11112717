"""What the documents on the trust plane say to type works when it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sealcast import Realm
from sealcast.wire import sealed_texts
from tests.docs.pages import TRUST, check_pasted, name
from tests.docs.paste import ROOT, blocks, paste

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("document", TRUST, ids=name)
def test_every_block_works_when_it_is_pasted(document: Path) -> None:
    check_pasted(document)


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
