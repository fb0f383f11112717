"""Who is let in: each attack fails on the console, and succeeds where the check that stops it is taken away."""

from __future__ import annotations

import pytest

from sealcast import Realm
from sealcast.console import guard
from sealcast.console.viewer import Viewer
from sealcast.console.visits import LINK_S, MAX_LINKS, MAX_SESSIONS, SESSION_S, Visits
from sealcast.errors import Misuse
from tests.console import world
from tests.console.world import Served

PAGES = ("/", f"/topics/{world.TOPIC}", "/live/overview", "/nothing")


# --- the link and the session ---------------------------------------------------------------------------


def test_a_link_lets_in_once(served: Served) -> None:
    link = served.service.link().removeprefix(served.origin)
    first, second = served.ask(link), served.ask(link)
    assert first.status == 200 and second.status == 403
    assert "set-cookie" not in second.headers
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Domain" not in cookie
    assert served.ask("/", Cookie=cookie.split(";")[0]).status == 200


def test_a_token_is_no_cookie_and_a_cookie_no_token(served: Served) -> None:
    token = served.service.visits.link()
    assert served.ask("/", Cookie=f"{guard.COOKIE}={token}").status == 401
    assert served.ask(f"/open/{served.cookie.partition('=')[2]}").status == 403


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("cookie", [None, "", "sealcast-console=", "sealcast-console=x", "other=1", "\xff=;=;"])
def test_nothing_is_shown_without_a_session(served: Served, path: str, cookie: str | None) -> None:
    answer = served.ask(path, **({} if cookie is None else {"Cookie": cookie}))
    assert answer.status == 401 and world.TOPIC not in answer.body


def test_links_and_sessions_end() -> None:
    now = [0.0]
    visits = Visits(lambda: now[0])
    late, link = visits.link(), visits.link()
    cookie = visits.enter(link)
    assert cookie is not None and visits.knows(cookie)
    now[0] = LINK_S
    assert visits.enter(late) is None
    now[0] = SESSION_S - 1
    assert visits.knows(cookie)  # and lasts again from here
    now[0] = 2 * SESSION_S - 2
    assert visits.knows(cookie)
    now[0] += SESSION_S
    assert not visits.knows(cookie)


def test_links_and_sessions_are_bounded() -> None:
    visits = Visits()
    links = [visits.link() for _ in range(MAX_LINKS + 1)]
    assert visits.enter(links[0]) is None
    cookies = [visits.enter(visits.link()) or "" for _ in range(MAX_SESSIONS + 1)]
    assert not visits.knows(cookies[0]) and visits.knows(cookies[-1])
    visits.leave(cookies[-1])
    assert not visits.knows(cookies[-1])


# --- other sites ----------------------------------------------------------------------------------------

#: What a page elsewhere can have a browser send, cookie included should the browser not know `SameSite`.
ATTACKS = {
    "rebinding": {"Host": "evil.example"},
    "rebinding, same port": {"Host": "evil.example:{port}"},
    "address": {"Host": "127.0.0.1:{port}"},
    "localhost": {"Host": "localhost:{port}"},
    "cross-site": {"Sec_Fetch_Site": "cross-site"},
    "same-site": {"Sec_Fetch_Site": "same-site"},
    "origin": {"Origin": "http://evil.example"},
    "origin null": {"Origin": "null"},
    "origin of another port": {"Origin": "http://{name}:1"},
}


def _headers(served: Served, attack: str) -> dict[str, str]:
    name, port = served.host.rsplit(":", 1)
    return {key: value.format(port=port, name=name) for key, value in ATTACKS[attack].items()}


@pytest.mark.parametrize("attack", ATTACKS)
def test_other_sites_read_nothing(served: Served, attack: str) -> None:
    answer = served.page("/", **_headers(served, attack))
    assert answer.status in (403, 421) and world.TOPIC not in answer.body


@pytest.mark.parametrize("attack", ["none", *ATTACKS])
def test_other_sites_change_nothing(served: Served, attack: str) -> None:
    """A form that is sent without an origin, or with another one, is not looked at."""
    headers = _headers(served, attack) if attack != "none" else {}
    given = {"Cookie": served.cookie} | headers
    assert served.ask("/", "POST", "a=b", **given).status in (403, 421)
    # With its own origin it gets to the page, which takes no form.
    assert served.send("/", "a=b").status == 405


def test_the_attacks_succeed_without_the_checks(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakened variant: a guard that knows sessions only."""

    def careless(self: guard.Guard, scope: guard.Scope, headers: guard.Headers) -> Viewer | guard.NotLetIn:
        return self._door.viewer(scope["path"], headers)

    with world.serving(realm) as served:
        cookie = served.enter()
        monkeypatch.setattr(guard.Guard, "_check", careless)
        for attack in ATTACKS:
            answer = served.ask("/", Cookie=cookie, **_headers(served, attack))
            assert answer.status == 200 and world.TOPIC in answer.body, attack


def test_a_console_answers_on_loopback_only(realm: Realm) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(Misuse, match="speaks no TLS"):
            world.ConsoleService(realm, Viewer(), host)


def test_each_console_has_a_name_of_its_own(realm: Realm) -> None:
    with world.serving(realm) as one, world.serving(realm) as other, world.serving(realm, numeric=True) as plain:
        assert one.host.split(":")[0] != other.host.split(":")[0]
        assert one.host.split(":")[0].endswith(".localhost")
        assert plain.host.startswith("127.0.0.1:")
        # A cookie of one is none of the other's.
        assert other.ask("/", Cookie=one.enter()).status == 401


# --- answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PAGES[:2], "/nothing", "/assets/console.js", "/assets/nothing.css", "/open/x"])
def test_every_answer_has_the_policy(served: Served, path: str) -> None:
    headers = served.page(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy and "base-uri 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


def test_files_of_the_package_are_those_of_the_pages_and_no_others(served: Served) -> None:
    for name in ("console.css", "console.js", "icon.svg"):
        assert served.page(f"/assets/{name}").status == 200
    for name in ("..%2fguard.py", "%2e%2e/guard.py", "nothing.js", "console.py", ""):
        assert served.page(f"/assets/{name}").status == 404


def test_a_form_is_bounded(served: Served) -> None:
    assert served.send("/", "a=" + "x" * (1 << 17)).status in (400, 405)
