"""The pages that are asked for something: an event, filters, rights, the lab; and what each viewer sees of events."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import pytest

from sealcast import Realm, Right
from sealcast.console import event as event_page
from sealcast.console.confirming import GOOD_S, MAX_WAITING, Act, Confirmations
from sealcast.console.viewer import Viewer
from sealcast.errors import Misuse
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
        body = f"topic={TOPIC}&entity=bob&right=subscribe&confirm=yes"
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
        done = served.send("/rights/revoke", f"{asked}&confirm={token_in(dry.body)}", sealcast_part="1")
        assert done.status == 200 and "Done" in done.body
        assert not realm.state().may_subscribe(TOPIC, "alice")
        assert Right.PUBLISH in realm.state().rights_of(TOPIC, "alice")
        assert "Nothing to do" in served.send("/rights/revoke", asked, sealcast_part="1").body
        # And the audit says so.
        rows = Read(served.page(f"/rights?entity=alice&topic={TOPIC}").body).words
        assert "still" in rows and "revoke" in rows


def token_in(body: str) -> str:
    """The token of the dry run on a page."""
    return re.findall(r'name="confirm" value="([^"]+)"', body)[0]


def test_what_was_not_shown_cannot_be_confirmed(tmp_path: Path) -> None:
    """Tokens that are nobody's, another session's, of something else, used, or of a realm that has changed since."""
    realm = world.make(tmp_path / "realm")
    asked = f"topic={TOPIC}&entity=alice&right="
    with world.serving(realm) as served, world.serving(realm) as other:
        before = realm.state().version

        def refused(token: str, right: str = "subscribe", at: Served = served) -> str:
            answer = at.send("/rights/revoke", f"{asked}{right}&confirm={token}", sealcast_part="1")
            assert answer.status == 400 and realm.state().version == before
            return answer.body

        def shown(right: str = "subscribe") -> str:
            return token_in(served.send("/rights/revoke", f"{asked}{right}", sealcast_part="1").body)

        refused("yes")
        refused(shown("publish"))  # of something else
        refused(shown(), at=other)  # another console's
        token = shown()
        served.enter()
        refused(token)  # another session's
        token = shown()
        assert served.send("/rights/compromise", f"entity=alice&typed=alice&confirm={token}").status == 400
        refused(token)  # it was used
        token = shown()
        realm.subscribe(TOPIC, "alice", "price > 7")
        before = realm.state().version
        assert "has changed since" in refused(token)


def test_the_forgery_succeeds_where_tokens_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant: any word confirms."""
    realm = world.make(tmp_path / "realm")
    monkeypatch.setattr(Confirmations, "spend", lambda self, token, act: None)
    with world.serving(realm) as served:
        forged = f"topic={TOPIC}&entity=alice&right=subscribe&confirm=yes"
        assert served.send("/rights/revoke", forged).status == 200
        assert not realm.state().may_subscribe(TOPIC, "alice")


def test_confirmations_end_and_are_bounded() -> None:
    now = [0.0]
    kept, act = Confirmations(lambda: now[0]), Act("me", "revoke", ("a",), ("b",))
    late, first = kept.token(act), kept.token(act)
    kept.spend(first, act)
    now[0] = GOOD_S
    with pytest.raises(Misuse):
        kept.spend(late, act)
    oldest = kept.token(act)
    for _ in range(MAX_WAITING):
        kept.token(act)
    with pytest.raises(Misuse):
        kept.spend(oldest, act)


def test_a_compromise_is_responded_to_after_a_dry_run(tmp_path: Path) -> None:
    realm, said = world.make(tmp_path / "realm"), list[str]()
    with world.serving(realm, tell=said.append) as served:
        before = realm.state().version
        told = served.send("/rights/compromise", "entity=bob", sealcast_part="1")
        assert "bob is revoked, for good" in told.body and "sealcast compromise bob" in told.body
        wrong = f"entity=bob&typed=alice&confirm={token_in(told.body)}"
        assert served.send("/rights/compromise", wrong, sealcast_part="1").status == 400
        assert realm.state().version == before and not said
        token = token_in(served.send("/rights/compromise", "entity=bob", sealcast_part="1").body)
        begun = served.send("/rights/compromise", f"entity=bob&typed=bob&confirm={token}", sealcast_part="1")
        assert begun.status == 200 and "/rights/responses/bob" in begun.body
        deadline = time.monotonic() + 120
        while "under way" in (page := served.page("/rights/responses/bob").body) and time.monotonic() < deadline:
            time.sleep(0.5)
        words = Read(page).words
        assert "bob is revoked, by registry version" in words and "not over" not in words and "over" in words
        assert realm.state().entity("bob").revoked and said == ["the response to the compromise of bob begins"]
        assert served.page("/rights/responses/alice").status == 404
        # And the audit says so.
        assert "version" in Read(served.page(f"/rights?entity=bob&topic={TOPIC}").body).words
        again = served.send("/rights/compromise", "entity=bob", sealcast_part="1")
        assert "was dealt with" in again.body


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
