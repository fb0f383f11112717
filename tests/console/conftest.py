"""One realm and one console for all tests that only look; one browser for all that click."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sealcast import Realm
from tests.console import world
from tests.console.world import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
#: No sandbox: tests may run as root, and the only pages are ours. Nothing that asks for the internet.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    return world.make(tmp_path_factory.mktemp("console") / "realm")


@pytest.fixture(scope="session")
def served(realm: Realm) -> Iterator[Served]:
    with world.serving(realm) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not longer than its module: while Playwright runs, no other test of the process can call `asyncio.run`."""
    from playwright.sync_api import sync_playwright

    if not Path(CHROMIUM).exists():
        pytest.fail("these tests need a browser: make chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()
