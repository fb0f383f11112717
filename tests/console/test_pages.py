"""The pages that are asked for something: an event, filters, rights, the lab; and what each viewer sees of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest

from sealcast import Realm, Right
from sealcast.console import event as event_page
from sealcast.console.viewer import Viewer
from sealcast.model.event import Position
from sealcast.primitives import merkle
from sealcast.protections.port import witness_side
from tests.console import world
from tests.console.test_html import Read
from tests.console.world import HOSTILE, TOPIC, Served

DELIVERED = f"/event?topic={TOPIC}&event=0/0/0&subscriber=alice"
#: Everything that can be asked for without changing anything.
ASKED = (
    "/",
    f"/topics/{TOPIC}",
    "/event",
    DELIVERED,
    f"/event?topic={TOPIC}&event=0/0/1&subscriber=alice",
    f"/filters?topic={TOPIC}&filter=price+%3E+0",
    "/rights",
    f"/rights?entity=alice&topic={TOPIC}&at=5",
    "/lab",
    "/lab/opyrchal/table1",
)


@pytest.fixture(scope="module")
def as_alice(realm: Realm) -> Iterator[Served]:
    with world.serving(realm, Viewer("alice")) as found:
        yield found


@pytest.fixture(scope="module")
def stranger(realm: Realm) -> Iterator[Served]:
    """Somebody who looks with rights of its own and administers nothing."""
    with world.serving(realm, Viewer("alice", administers=False, everything=False)) as found:
        yield found


# --- who sees events --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ASKED)
def test_an_administrator_sees_no_event(served: Served, path: str) -> None:
    answer = served.page(path)
    assert answer.status == 200
    words = Read(answer.body).words
    assert "paid in full" not in words and "price is" not in words and "price=118" not in words


def test_a_reader_sees_its_own_events(as_alice: Served) -> None:
    """The same questions, by somebody who may read: the test above looks for what would be there."""
    assert "price is 118" in Read(as_alice.page(DELIVERED).body).words
    assert "price=118" in Read(as_alice.page(f"/filters?topic={TOPIC}&filter=price+%3E+0").body).words
    # What it was not sent, it does not see.
    assert "price is 121" not in Read(as_alice.page(f"/event?topic={TOPIC}&event=0/0/1&subscriber=alice").body).words
    assert "price is" not in Read(as_alice.page(f"/event?topic={TOPIC}&event=0/0/0&subscriber=bob").body).words


def test_who_administers_nothing_changes_nothing_and_asks_about_itself(stranger: Served, realm: Realm) -> None:
    before = realm.state().version
    assert stranger.page(f"/event?topic={TOPIC}&event=0/0/0&subscriber=bob").status == 400
    for path in ("/rights/revoke", "/rights/compromise"):
        body = f"topic={TOPIC}&entity=bob&right=subscribe&meant=yes"
        assert stranger.send(path, body).status == 400
    assert stranger.send("/lab/opyrchal/table1", "").status == 400
    assert realm.state().version == before


# --- an event ---------------------------------------------------------------------------------------------


def test_why_is_told_clause_by_clause(served: Served) -> None:
    words = Read(served.page(DELIVERED).body).words
    assert "delivered" in words and "price < 120" in words and "verified" in words
    words = Read(served.page(f"/event?topic={TOPIC}&event=0/0/1&subscriber=alice").body).words
    assert "not matched" in words and "false" in words


def test_a_proof_is_verified_and_a_false_one_is_not(realm: Realm) -> None:
    position = Position(0, 0, 1)
    answer = witness_side(realm.state().topic(TOPIC).protection).why(realm, TOPIC, position, "alice")
    proof = event_page.proof_of(realm, TOPIC, position, answer)
    assert proof is not None and proof.path_good and proof.signature_good and proof.events == 2
    assert not proof._replace(root=sha256(b"another").digest()).path_good
    assert not proof._replace(steps=(), leaf=sha256(b"another").digest()).path_good


@pytest.mark.parametrize("count", [*range(1, 18), 33])
def test_the_way_up_is_that_of_the_tree(count: int) -> None:
    leaves = [sha256(bytes([n])).digest() for n in range(count)]
    nodes = merkle.build(leaves)
    for index, leaf in enumerate(leaves):
        path = merkle.path(nodes, count, index)
        steps = list(event_page._way_up(leaf, index, count, path))
        assert len(steps) == len(path)
        assert (steps[-1][2] if steps else leaf) == merkle.root(nodes, count)
        assert merkle.verify(merkle.root(nodes, count), leaf, index, count, path)


@pytest.mark.parametrize(
    "asked", ["event=x&subscriber=alice", "event=0/99/0&subscriber=alice", "event=0/0/0&subscriber=x"]
)
def test_what_is_no_event_is_said(served: Served, asked: str) -> None:
    answer = served.page(f"/event?topic={TOPIC}&{asked}")
    assert answer.status in (200, 400, 404, 422) and "fault" not in answer.body


# --- filters ----------------------------------------------------------------------------------------------


def test_a_filter_is_judged_while_one_types(served: Served) -> None:
    fits = served.page(f"/filters?topic={TOPIC}&filter={quote('price < 120 AND symbol LIKE ' + repr('I%'))}").body
    assert "fits" in fits and Read(fits).words.count("yes") == 5
    syntax = Read(served.page(f"/filters?topic={TOPIC}&filter={quote('price < AND')}", sealcast_part="1").body).words
    assert "It does not fit" in syntax and "^" in syntax
    some = Read(
        served.page(f"/filters?topic={TOPIC}&filter={quote('price <> 7 AND symbol LIKE ' + repr('%x%y%'))}").body
    ).words
    assert "no" in some


def test_a_hostile_filter_is_text(served: Served) -> None:
    for text in (HOSTILE, f"symbol = '{HOSTILE.replace(chr(39), '')}'", "</textarea><script>x</script>"):
        found = Read(served.page(f"/filters?topic={TOPIC}&filter={quote(text)}").body)
        assert "img" not in found.tags and found.tags.count("script") == 1


# --- rights -----------------------------------------------------------------------------------------------


def test_a_right_is_taken_away_after_a_dry_run(tmp_path: Path) -> None:
    realm = world.make(tmp_path / "realm")
    with world.serving(realm) as served:
        asked = f"topic={TOPIC}&entity=alice&right=subscribe"
        before = realm.state().version
        dry = served.send("/rights/revoke", asked, sealcast_part="1")
        assert dry.status == 200 and "delivers nothing" in dry.body
        assert realm.state().version == before and realm.state().may_subscribe(TOPIC, "alice")
        done = served.send("/rights/revoke", f"{asked}&meant=yes", sealcast_part="1")
        assert done.status == 200 and "Done" in done.body
        assert not realm.state().may_subscribe(TOPIC, "alice")
        assert Right.PUBLISH in realm.state().rights_of(TOPIC, "alice")
        assert "Nothing to do" in served.send("/rights/revoke", asked, sealcast_part="1").body
        # And the audit says so.
        rows = Read(served.page(f"/rights?entity=alice&topic={TOPIC}").body).words
        assert "still" in rows and "revoke" in rows


def test_a_compromise_is_previewed_and_not_done(served: Served, realm: Realm) -> None:
    before = realm.state().version
    told = served.send("/rights/compromise", "entity=alice", sealcast_part="1")
    assert told.status == 200 and "alice is revoked, for good" in told.body and "sealcast compromise alice" in told.body
    assert realm.state().version == before


@pytest.mark.parametrize("body", ["", "topic=x&entity=alice&right=subscribe", f"topic={TOPIC}&entity=alice&right=fly"])
def test_acts_that_make_no_sense_are_refused(served: Served, body: str) -> None:
    assert served.send("/rights/revoke", body).status in (400, 404)


# --- the lab ----------------------------------------------------------------------------------------------


def test_figures_that_were_made_are_shown(realm: Realm, tmp_path: Path) -> None:
    made = {"experiment": "opyrchal/fig6", "rows": [{"cell": HOSTILE, "printed": 1.5, "agrees": True}], "agrees": True}
    (tmp_path / "opyrchal-fig6.json").write_text(json.dumps(made | {"notes": ["as printed"]}))
    (tmp_path / "opyrchal-fig6.png").write_bytes(b"\x89PNG")
    (tmp_path / "secret.txt").write_text("x")
    with world.serving(realm, figures=tmp_path) as served:
        page = served.page("/lab/opyrchal/fig6")
        assert page.status == 200 and "as printed" in page.body and Read(page.body).tags.count("img") == 1
        assert served.page("/lab/figures/opyrchal-fig6.png").headers["content-type"] == "image/png"
        for name in ("secret.txt", "..%2fsecret.png", "nothing.png"):
            assert served.page(f"/lab/figures/{name}").status == 404
        assert served.page("/lab/opyrchal/nothing").status == 404
        assert "agrees" in served.page("/lab").body


@pytest.mark.soak
def test_an_experiment_is_run_on_demand(realm: Realm, tmp_path: Path) -> None:
    import time

    with world.serving(realm, figures=tmp_path) as served:
        assert "running" in served.send("/lab/opyrchal/table1", "").body
        assert served.send("/lab/opyrchal/fig6", "").status == 503
        for _ in range(600):
            if (tmp_path / "opyrchal-table1.json").exists():
                break
            time.sleep(1)
        assert "agrees" in served.page("/lab/opyrchal/table1").body
