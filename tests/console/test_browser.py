"""The pages in a real browser: clicks, live updates, the keyboard, what scripts may do, and accessibility."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sealcast import Realm
from tests.console import world
from tests.console.world import HOSTILE, TOPIC, Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: Every page, as far as it is shown without anybody asking for anything.
PAGES = (
    "/",
    f"/topics/{TOPIC}",
    f"/sees?topic={TOPIC}",
    f"/event?topic={TOPIC}&event=0/0/0&subscriber=alice",
    f"/filters?topic={TOPIC}&filter=price+%3C+120",
    "/rights",
    "/lab",
)


@pytest.fixture(scope="module")
def visited(browser: Browser, served: Served) -> Iterator[Page]:
    """A browser that came by a link."""
    context = browser.new_context(base_url=served.origin, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(served.service.link())
    page.wait_for_url(f"{served.origin}/")
    yield page
    context.close()


@pytest.fixture
def page(visited: Page) -> Iterator[Page]:
    """The same, and nothing went wrong on its pages: no error, and nothing that the policy had to stop."""
    wrong: list[str] = []
    visited.on("pageerror", lambda error: wrong.append(str(error)))
    visited.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    yield visited
    assert not wrong


def axe(page: Page) -> list[dict[str, Any]]:
    """What an automated check of accessibility finds wrong, as far as one can."""
    page.evaluate((resources.files("axe_playwright_python") / "axe.min.js").read_text())
    found: list[dict[str, Any]] = page.evaluate("() => axe.run().then(result => result.violations)")
    return [{"rule": each["id"], "where": [node["target"] for node in each["nodes"]]} for each in found]


def test_a_link_leads_to_the_overview(page: Page) -> None:
    page.goto("/")
    assert page.get_by_role("heading", level=1).inner_text() == "Overview"
    assert page.get_by_role("link", name=TOPIC, exact=True).is_visible()


def test_a_click_leads_to_a_topic(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name=TOPIC, exact=True).click()
    page.wait_for_url(f"**/topics/{TOPIC}")
    path = page.locator("svg.path")
    assert "admit: 2 events" in (path.locator("title").text_content() or "")


def test_switching_the_protection_shows_what_disappears(page: Page) -> None:
    page.goto("/sees")
    marks = page.locator("#seen pre.hex mark")
    assert page.get_by_role("heading", name="Under endpoint").is_visible() and marks.count() > 0
    page.get_by_role("radio", name="searchable").check()
    page.get_by_role("heading", name="Under searchable").wait_for()
    assert marks.count() == 0
    assert page.locator("#seen .sides section").nth(1).get_by_text("Mrs. Jones").is_visible()
    assert "protection=searchable" in page.url  # a reload, or a link to it, shows the same


def test_a_filter_is_judged_while_one_types(page: Page) -> None:
    page.goto(f"/filters?topic={TOPIC}")
    page.get_by_label("Filter").fill("price < ")
    page.get_by_role("heading", name="It does not fit").wait_for()
    page.get_by_label("Filter").fill("price < 120 AND symbol = 'IBM'")
    page.get_by_role("heading", name="What it says").wait_for()
    assert page.evaluate("document.activeElement.name") == "filter"


def test_a_dry_run_is_shown_before_a_right_is_taken_away(page: Page, realm: Realm) -> None:
    page.goto(f"/rights?entity=bob&topic={TOPIC}")
    before = realm.state().version
    page.locator("[name=right]").select_option("subscribe")
    page.get_by_role("button", name="Show what it would do").first.click()
    page.get_by_role("button", name="Revoke subscribe of bob").wait_for()
    assert realm.state().version == before


def test_numbers_move_while_a_page_is_open(page: Page, realm: Realm) -> None:
    page.goto(f"/topics/{TOPIC}")
    number = page.locator("svg.path .step-number").nth(1)
    before = int(number.text_content() or "")
    world.publish(realm, 130, 131, 132)
    world.turn(realm)
    page.wait_for_function(
        "n => +document.querySelectorAll('svg.path .step-number')[1].textContent === n", arg=before + 3
    )


def test_hostile_text_is_shown_and_does_nothing(page: Page) -> None:
    page.goto("/sees")
    page.locator("[name='a.ward']").fill(HOSTILE[:16])
    page.locator("[name=payload]").fill(HOSTILE)
    page.get_by_role("button", name="Publish it").click()
    page.locator("#seen .sides mark", has_text="onerror").first.wait_for()
    assert page.title() != "owned" and page.locator("main img").count() == 0


def test_the_policy_stops_what_gets_into_a_page(visited: Page) -> None:
    """Should markup of others ever become part of a page, it does nothing either: the second line holds alone."""
    stopped: list[str] = []
    visited.on("console", lambda said: stopped.append(said.text) if said.type == "error" else None)
    visited.goto("/")
    inserted = """() => {
        const image = document.createElement('img');
        image.setAttribute('src', '/assets/nothing.svg');
        document.body.append(image);
        try { image.setAttribute('onerror', "document.title = 'owned'"); } catch { }
        const script = document.createElement('script');
        try { script.textContent = "document.title = 'owned'"; document.body.append(script); } catch { }
        try { document.body.insertAdjacentHTML('beforeend', '<p>x</p>'); } catch { return 'refused'; }
        return 'taken';
    }"""
    assert visited.evaluate(inserted) == "refused"
    visited.wait_for_timeout(200)
    assert visited.title() != "owned" and stopped


def test_the_keyboard_reaches_everything(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    reached = set()
    for _ in range(40):
        reached.add(page.evaluate("document.activeElement.getAttribute('href')"))
        page.keyboard.press("Tab")
    assert f"/topics/{TOPIC}" in reached


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_accessible(page: Page, path: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(path)
    assert axe(page) == []
    page.emulate_media(color_scheme="dark")
    assert axe(page) == []


def test_the_check_of_accessibility_finds_what_is_wrong(visited: Page) -> None:
    """The weakened variant: a page whose words one cannot read and whose picture says nothing."""
    visited.emulate_media(color_scheme="light")
    visited.goto("/")
    visited.evaluate("document.querySelectorAll('h2').forEach(each => each.style.setProperty('color', '#eee'))")
    visited.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert {"color-contrast", "image-alt"} <= {each["rule"] for each in axe(visited)}


def test_the_theme_is_chosen_and_kept(page: Page) -> None:
    page.goto("/")
    shade = "getComputedStyle(document.body).backgroundColor"
    seen = set()
    for _ in range(3):
        page.locator("#theme").click()
        seen.add((page.locator("#theme").inner_text(), page.evaluate(shade)))
    assert len({words for words, _ in seen}) == 3 and len({colour for _, colour in seen}) == 2
    page.locator("#theme").click()
    chosen = page.locator("#theme").inner_text()
    page.reload()
    assert page.locator("#theme").inner_text() == chosen
    page.evaluate("localStorage.clear()")


def test_pages_ask_for_nothing_elsewhere(page: Page, served: Served) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in PAGES:
        page.goto(path)
    assert asked and all(re.match(re.escape(served.origin) + "/", url) for url in asked)


def test_another_page_cannot_frame_or_read_the_console(browser: Browser, served: Served, tmp_path: Path) -> None:
    """From another origin on this machine, with the browser's own rules and its own cookies."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(served.service.link())
    page.wait_for_url(f"{served.origin}/")
    numeric = served.origin.replace(served.host.split(":")[0], "127.0.0.1")
    page.route(f"{numeric}/evil", lambda route: route.fulfill(body="<h1>evil</h1>", content_type="text/html"))
    page.goto(f"{numeric}/evil")
    read = f"() => fetch('{served.origin}/', {{credentials: 'include'}}).then(a => a.text(), () => 'refused')"
    assert page.evaluate(read) == "refused"
    framed = f"""() => new Promise(done => {{
        const frame = document.createElement('iframe');
        frame.onload = () => done(frame.contentDocument ? 'read' : 'blocked');
        frame.src = '{served.origin}/'; document.body.append(frame);
    }})"""
    assert page.evaluate(framed) == "blocked"
    # The other server on this machine never saw the cookie: it is of another host.
    assert not [each for each in context.cookies(numeric) if "sealcast" in each.get("name", "")]
    context.close()
