"""The console over a gateway: by an entity's certificate, in a real browser and with a plain HTTPS client."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from sealcast import Realm, Schema
from sealcast.console.behind import GatewayDoor
from sealcast.console.guard import Guard, NotLetIn
from sealcast.console.viewer import Viewer
from sealcast.gateway import app as gateway_app
from sealcast.gateway.callers import Caller, Callers
from sealcast.gateway.pages import CALLER, COST, COSTS, cost_of, is_page
from sealcast.primitives import x509
from tests.cli.shell import sealcast
from tests.console import world
from tests.console.world import TOPIC, Answer, answer_of
from tests.gateway.world import RunningGateway, identity_pem

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PASSWORD = "correct horse battery staple"
OTHER = "salaries"
PATIENCE_S = 60


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    """Two topics. alice and bob read one of them; carol reads the other, and sees everything on the console."""
    made = world.make(tmp_path_factory.mktemp("behind") / "realm")
    made.enrol_many(["carol", "mallory"])
    made.create_topic(OTHER, Schema.from_json({"attributes": [{"name": "price", "type": "int"}]}))
    made.grant(OTHER, "carol")
    made.add_gateway("door", ["localhost", "127.0.0.1"])
    return made


@pytest.fixture(scope="module")
def served(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    made = RunningGateway(realm, tmp_path_factory.mktemp("clients"), console=["carol"])
    try:
        yield made
    finally:
        made.stop()


class EntityBrowser:
    """A plain HTTPS client with an entity's certificate: it sends what it is told to, as `world.Served` does."""

    def __init__(self, gateway: RunningGateway, name: str | None, directory: Path) -> None:
        self.port = gateway.port
        self._context = ssl.create_default_context(cafile=gateway.root)
        if name is not None:
            self._context.load_cert_chain(identity_pem(gateway.realm, name, directory))

    def ask(self, path: str, method: str = "GET", body: str = "", **headers: str) -> Answer:
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=PATIENCE_S, context=self._context)
        return answer_of(connection, path, method, body, headers)


Come = Callable[[str | None], EntityBrowser]


@pytest.fixture
def come(served: RunningGateway, tmp_path: Path) -> Come:
    return lambda name: EntityBrowser(served, name, tmp_path)


# --- what each sees -------------------------------------------------------------------------------------


def test_an_entity_sees_its_own_topics_and_no_others(come: Come) -> None:
    alice = come("alice")
    first = alice.ask("/console/")
    assert first.status == 200 and TOPIC in first.body and OTHER not in first.body
    assert f"/console/topics/{TOPIC}" in first.body and "GB are free" not in first.body
    assert alice.ask(f"/console/topics/{TOPIC}").status == 200
    for path in (f"topics/{OTHER}", f"live/topics/{OTHER}", f"rights?topic={OTHER}", f"event?topic={OTHER}"):
        answer = alice.ask(f"/console/{path}")
        assert answer.status == 404 and "that you may see" in answer.body, path


def test_who_sees_everything_sees_no_event(come: Come) -> None:
    carol = come("carol")
    first = carol.ask("/console/")
    assert TOPIC in first.body and OTHER in first.body and "GB are free" in first.body
    why = carol.ask(f"/console/event?topic={TOPIC}&event=0/0/0&subscriber=alice").body
    assert "delivered" in why and "price &lt; 120" in why
    for path in ("", f"topics/{TOPIC}", f"event?topic={TOPIC}&event=0/0/0&subscriber=alice", "filters", "rights"):
        page = carol.ask(f"/console/{path}").body
        # A digest may have the price's digits in it.
        assert "paid in full" not in page and not re.search(r"\b118\b", page), path


def test_nobody_changes_anything_over_a_gateway(come: Come, realm: Realm) -> None:
    before = realm.state().version
    for name in ("alice", "carol"):
        browser = come(name)
        origin = f"https://localhost:{browser.port}"
        assert "Take something away" not in browser.ask("/console/rights").body
        for act in ("revoke", "compromise"):
            body = f"topic={TOPIC}&entity=bob&right=subscribe&meant=yes"
            answer = browser.ask(f"/console/rights/{act}", "POST", body, Origin=origin)
            assert answer.status == 400 and "administrator" in answer.body
    assert realm.state().version == before


def test_rights_and_lags_of_others_are_not_shown(come: Come) -> None:
    rights = come("alice").ask("/console/rights?entity=bob").body
    assert '<th scope="row">alice</th>' in rights and '<th scope="row">bob</th>' not in rights
    page = come("bob").ask(f"/console/topics/{TOPIC}").body
    assert "Nobody is behind" in page or "alice" not in page.partition("Who is behind")[2].partition("</table>")[0]
    assert "The last refusals" not in page and "The last refusals" in come("carol").ask(f"/console/topics/{TOPIC}").body


def test_a_reason_is_not_an_oracle(come: Come) -> None:
    """Event 0/0/1 (price 121) did not reach alice. Which clause failed would tell her what was in it."""
    asked = f"/console/event?topic={TOPIC}&event=0/0/1&subscriber="
    told = come("alice").ask(asked + "alice").body
    assert "did not reach alice" in told and "price" not in told and "badge bad" not in told
    assert come("alice").ask(asked + "bob").status == 400
    # The weakened variant is the administrator's own view, which has the clause.
    assert "price &lt; 120" in come("carol").ask(asked + "alice").body


# --- who is let in --------------------------------------------------------------------------------------


def test_nobody_comes_without_a_certificate_or_after_its_end(
    come: Come, realm: Realm, served: RunningGateway, tmp_path: Path
) -> None:
    answer = come(None).ask("/console/")
    assert answer.status == 401 and json.loads(answer.body)["reason"] == "missing"
    mallory = come("mallory")
    assert mallory.ask("/console/").status == 200
    realm.revoke_entity("mallory")
    deadline = time.monotonic() + PATIENCE_S
    while served.hub.newest.version < realm.state().version and time.monotonic() < deadline:
        time.sleep(0.02)
    assert mallory.ask("/console/").status == 401


ATTACKS: Mapping[str, Mapping[str, str]] = {
    "cross-site": {"Sec_Fetch_Site": "cross-site"},
    "same-site": {"Sec_Fetch_Site": "same-site"},
    "origin": {"Origin": "https://evil.example"},
    "origin null": {"Origin": "null"},
    "host": {"Host": "evil.example"},
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_other_sites_reach_neither_pages_nor_the_interface(come: Come, attack: str) -> None:
    """Browsers show their certificate also when another site makes them ask."""
    alice = come("alice")
    page = alice.ask(f"/console/topics/{TOPIC}", **ATTACKS[attack])
    assert page.status in (403, 421) and "publish" not in page.body
    if attack != "host":
        assert alice.ask("/v1/registry/changes", **ATTACKS[attack]).status == 403


def test_the_attacks_succeed_without_the_checks(come: Come, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variants: an interface that does not ask where a request was made, and a door without its guard."""
    alice = come("alice")
    good = alice.ask("/v1/registry/changes").status
    monkeypatch.setattr(gateway_app, "_be_no_browser", lambda headers: None)
    assert all(alice.ask("/v1/registry/changes", **ATTACKS[each]).status == good for each in ("cross-site", "origin"))
    door = GatewayDoor(frozenset({"localhost"}), frozenset())
    guarded = Guard(PlainTextResponse("shown"), door, lambda *why: PlainTextResponse("refused", 403))
    for attack in ATTACKS.values():
        given = {"host": "localhost", CALLER: "alice"} | {n.replace("_", "-").lower(): v for n, v in attack.items()}
        headers = Headers(given)
        assert isinstance(guarded._check({"path": "/event", "method": "GET"}, headers), NotLetIn)
        assert door.viewer("/event", headers) == Viewer.over_gateway("alice", everything=False)


def test_a_link_elsewhere_may_lead_to_the_first_page(come: Come) -> None:
    alice = come("alice")
    assert alice.ask("/console/", Sec_Fetch_Site="cross-site").status == 200
    moved = alice.ask("/console")
    assert moved.status == 308 and moved.headers["location"] == "/console/"


@pytest.mark.parametrize("claimed", ["carol", "carol\tx", "admin"])
def test_nobody_says_who_it_is(come: Come, claimed: str) -> None:
    assert OTHER not in come("alice").ask("/console/", sealcast_caller=claimed).body


def test_paths_of_the_console_alone_lead_to_it(come: Come) -> None:
    alice = come("alice")
    for path in ("/consoles/", "/console%2f", "/v1/../console/../lab", "/console/../rights"):
        assert alice.ask(path).status in (400, 404), path
    assert alice.ask("/console/nothing").status == 404
    assert alice.ask("/console/", "DELETE").status == 405
    assert alice.ask("/console/rights/revoke", "POST", "a=" + "x" * (1 << 17)).status == 413
    assert is_page("/console") and is_page("/console/x") and not is_page("/consolex")
    assert [cost_of("/console/event"), cost_of("/console/"), cost_of("/console/assets/x")] == [
        COSTS["event"], COST, COSTS["assets"]
    ]  # fmt: skip


def test_a_console_that_dies_is_started_again(come: Come, realm: Realm, served: RunningGateway) -> None:
    alice = come("alice")
    assert alice.ask("/console/").status == 200
    named = str(realm.paths.root).encode()
    (pid,) = [
        int(each.parent.name)
        for each in Path("/proc").glob("[0-9]*/cmdline")
        if b"sealcast.console.behind" in (line := _command_line(each)) and named in line
    ]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while (found := alice.ask("/console/").status) != 200 and time.monotonic() < deadline:
        assert found == 503
        time.sleep(0.1)
    assert found == 200 and "is started again" in served.log.getvalue()
    assert alice.ask("/v1/registry/changes").status == 200  # the gateway itself never stopped


def _command_line(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended since
        return b""


def test_a_gateway_without_a_console_has_none(realm: Realm, tmp_path: Path) -> None:
    plain = RunningGateway(realm, tmp_path)
    try:
        (tmp_path / "keys").mkdir()
        assert EntityBrowser(plain, "alice", tmp_path / "keys").ask("/console/").status == 404
    finally:
        plain.stop()


def test_viewers_over_a_gateway_are_their_certificates() -> None:
    viewer = Viewer.over_gateway("alice", everything=False)
    assert not viewer.administers and viewer.reader is None and viewer.own == "alice" and viewer.shown == "alice"
    door = GatewayDoor(frozenset({"localhost", "::1"}), frozenset())
    assert all(map(door.answers_at, ("localhost", "localhost:7443", "LOCALHOST", "[::1]:7443")))
    assert not any(map(door.answers_at, ("evil.example", "localhost.evil.example", "", "localhost:")))


# --- in a browser ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """alice's certificate as a user makes it for a browser."""
    directory = tmp_path_factory.mktemp("exported")
    password = directory / "password"
    password.touch(0o600)
    password.write_text(PASSWORD + "\n")
    at = ("--realm", realm.paths.root)
    made = sealcast(
        "entity", "browser", "alice", "--to", directory / "alice.p12", "--password-file", password,
        "--root", directory / "root.pem", "--json", *at,
    )  # fmt: skip
    assert made.code == 0, made.err
    assert json.loads(made.out)["entity"] == "alice"
    assert (directory / "alice.p12").stat().st_mode & 0o077 == 0
    founding = realm.state().founding
    assert founding is not None and x509.from_pem((directory / "root.pem").read_bytes()) == founding.root
    again = sealcast("entity", "browser", "alice", "--to", directory / "alice.p12", "--password-file", password, *at)
    assert again.code == 1 and "name a new file" in again.err
    return directory / "alice.p12"


def test_a_browser_with_the_certificate_gets_pages_that_move(
    browser: Browser, served: RunningGateway, exported: Path, realm: Realm
) -> None:
    origin = f"https://localhost:{served.port}"
    # Playwright shows the certificate. That the server is the gateway, the plain client above verifies.
    context = browser.new_context(
        base_url=origin,
        ignore_https_errors=True,
        client_certificates=[{"origin": origin, "pfxPath": str(exported), "passphrase": PASSWORD}],
    )
    try:
        page = context.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.goto("/console/")
        assert page.get_by_role("heading", level=1).inner_text() == "Overview"
        assert page.locator(".viewer").inner_text() == "alice"
        page.get_by_role("link", name=TOPIC, exact=True).click()
        page.wait_for_url(re.compile(f"/console/topics/{quote(TOPIC)}$"))
        number = page.locator("svg.path .step-number").nth(1)
        before = int(number.text_content() or "")
        world.publish(realm, 130, 131)
        world.turn(realm)
        page.wait_for_function(
            "n => +document.querySelectorAll('svg.path .step-number')[1].textContent === n", arg=before + 2
        )
        page.get_by_role("link", name="Rights", exact=True).click()
        page.wait_for_url("**/console/rights")
        assert page.get_by_role("heading", name="Take something away").count() == 0
        assert not wrong
    finally:
        context.close()


# --- a page that stays open -------------------------------------------------------------------------------


def _moves_after_its_time(
    served: RunningGateway, alice: EntityBrowser, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Whether an open page goes on moving when its certificate has ended, and nothing was decided in the realm."""
    connection = http.client.HTTPSConnection("localhost", alice.port, timeout=PATIENCE_S, context=alice._context)
    connection.request("GET", "/console/live/overview")
    answer, seen = connection.getresponse(), b""
    assert answer.status == 200
    while b"event: parts" not in seen:
        seen += answer.read1(1 << 16)
    ends = realm.trust(realm.state()).recognise(realm.state().entity("alice").certificate).not_after_us
    monkeypatch.setattr(served.hub.callers, "_clock", lambda: ends + 1)
    world.publish(realm, 130)
    try:
        return bool(answer.read1(1 << 16))
    except (http.client.HTTPException, OSError):
        return False
    finally:
        connection.close()


def test_a_page_ends_with_the_certificate(
    come: Come, served: RunningGateway, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not _moves_after_its_time(served, come("alice"), realm, monkeypatch)


def test_where_pages_are_judged_by_the_registry_alone_it_goes_on(
    come: Come, served: RunningGateway, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[bytes | None, Caller] = {}
    judge = Callers.judge
    monkeypatch.setattr(Callers, "judge", lambda self, der: known.get(der) or known.setdefault(der, judge(self, der)))
    assert _moves_after_its_time(served, come("alice"), realm, monkeypatch)
