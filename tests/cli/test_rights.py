"""sealcast grant says what it takes away, and topic alter whom it shuts out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast


def test_new_topics_are_granted_and_say_so(home: Path) -> None:
    made = sealcast("topic", "create", "closed", "--schema", "schema.json")
    assert made.code == 0 and "created (granted" in made.out
    assert "nobody may use it yet: sealcast grant closed" in made.err
    refused = sealcast("subscription", "add", "closed", "--as", "alice", "--filter", "price > 1")
    assert refused.code == 1 and "may not subscribe" in refused.err
    assert sealcast("grant", "closed", "alice", "subscribe", "--for", "1h").code == 0, "nothing is narrowed by it"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--for", "1h"), "until"),
        (("--from", "2999-01-01"), "from 2999-01-01"),
        (("--template", "symbol=IBM"), "for symbol=IBM"),
    ],
)
def test_a_grant_that_narrows_says_so_and_needs_a_flag(home: Path, options: tuple[str, ...], said: str) -> None:
    before = Realm(home).state()
    refused = sealcast("grant", "quotes", "alice", "subscribe", *options)
    assert refused.code == 1 and "'alice' may subscribe on 'quotes' without a limit" in refused.err
    assert "this would narrow it" in refused.err and said in refused.err and "--narrow" in refused.err
    assert Realm(home).state().version == before.version
    meant = sealcast("grant", "quotes", "alice", "subscribe", *options, "--narrow")
    assert meant.code == 0 and said in meant.out
    assert "narrowed: 'alice' may subscribe on 'quotes' without a limit so far" in meant.err


def test_longer_wider_and_other_rights_need_no_flag(home: Path) -> None:
    grant = ("grant", "quotes", "alice", "subscribe")
    assert sealcast(*grant, "--for", "1h", "--template", "symbol=IBM", "--narrow").code == 0
    assert sealcast(*grant, "--for", "2h", "--template", "symbol=IBM").code == 0
    assert sealcast(*grant, "--for", "1h", "--template", "symbol=IBM").code == 1
    assert sealcast(*grant, "--for", "3h", "--template", "symbol=AAPL").code == 1, "another template takes IBM away"
    assert sealcast(*grant).code == 0
    assert sealcast("revoke", "quotes", "alice", "subscribe").code == 0
    assert sealcast(*grant, "--for", "1h").code == 0, "what one does not have cannot be narrowed"


def test_topic_alter_says_whom_it_shuts_out(home: Path) -> None:
    assert sealcast("grant", "quotes", "nyse", "publish", "subscribe").code == 0
    closed = sealcast("topic", "alter", "quotes", "--access", "granted", "--json")
    assert closed.code == 0, closed.err
    assert (closed.document["shut_out"], closed.document["let_in"]) == (["alice", "bob"], [])
    assert sealcast("topic", "show", "quotes", "--json").document["access"] == "granted"
    opened = sealcast("topic", "alter", "quotes", "--access", "members")
    assert opened.code == 0 and "is for every member" in opened.out
    again = sealcast("topic", "alter", "quotes", "--access", "granted")
    assert "no longer let in: alice, bob" in again.out
    assert sealcast("topic", "alter", "quotes", "--access", "all").code == 1
    assert sealcast("topic", "alter", "none", "--access", "granted").code == 1
