"""sealcast serve, token request, and what a topic's owner asks: through real services, in their own processes too."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sealcast.control.center.proofs import MAX_MISSED
from sealcast.control.center.rules import MAX_TOPICS_EACH
from sealcast.control.desk import MAX_SUBSCRIPTIONS_EACH
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.filter_texts import OwnerFilters
from sealcast.trust.tokens.token import TokenReason
from tests.cli.shell import sealcast, spawn

GUIDE = Path(__file__).parents[2] / "docs" / "trust" / "key-center.md"


def test_the_guides_numbers_are_those_of_the_code() -> None:
    text = GUIDE.read_text()
    assert f"{MAX_TOPICS_EACH:,} topics an owner" in text and f"{MAX_SUBSCRIPTIONS_EACH:,} on a topic each" in text
    assert f"{len(TokenReason)} checks" in text and MAX_MISSED == 3 and "Three missed in a row" in text


def test_a_token_is_asked_for_and_inspected(home: Path) -> None:
    asked = sealcast("token", "request", "quotes", "--as", "alice", "--right", "subscribe", "--out", "t", "--json")
    assert asked.code == 0, asked.err
    assert asked.document["subject"] == "alice" and asked.document["keys"] == [1]
    assert (home / "t").read_bytes().hex() == asked.document["token"]
    assert sealcast("token", "inspect", "t", "--json").document["verifies"] is True
    assert (
        "'alice' may publish and subscribe on 'quotes'" in sealcast("token", "request", "quotes", "--as", "alice").out
    )


def test_what_is_kept_can_be_inspected(home: Path) -> None:
    sealcast("token", "request", "quotes", "--as", "alice")
    (path,) = (home / "wallets" / "alice").iterdir()
    found = sealcast("inspect", path, "--json").document
    assert found["is"] == "a key center's answer, as an entity keeps it"
    assert (found["entity"], found["center"], found["keys_of_epochs"]) == ("alice", "center", [1])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("token", "request", "nothing", "--as", "alice"), 1, "there is no topic 'nothing'"),
        (("token", "request", "quotes", "--as", "nobody"), 1, "there is no entity 'nobody'"),
        (("token", "request", "quotes", "--as", "alice", "--right", "fly"), 2, "a right is publish or subscribe"),
        (("serve", "castle", "--once"), 1, "no service 'castle' can run here"),
        (("serve", "--once", "--restrict", "age=7"), 1, "is no condition"),
        (("topic", "register", "x", "--schema", "schema.json", "--as", "alice", "--set", "key_bits=7"), 1, "key_bits"),
        (("topic", "register", "x", "--schema", "schema.json", "--as", "alice", "--set", "what"), 1, "not a parameter"),
        (("topic", "register", "quotes", "--schema", "schema.json", "--as", "alice"), 1, "exists already"),
        (("grant", "quotes", "bob", "publish", "--as", "alice"), 1, "only who registered a topic decides"),
        (("revoke", "quotes", "bob", "publish", "--as", "alice"), 1, "only who registered a topic decides"),
        (("topic", "rotate", "quotes", "--as", "alice"), 1, "only who registered a topic decides"),
        (("topic", "rotate", "--due", "--as", "alice"), 2, "an owner names the topics"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refusals_say_why(home: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    before = Realm(home).state().version
    result = sealcast(*arguments)
    assert result.code == code and says in result.err
    assert Realm(home).state().version == before


def test_an_owner_decides_about_its_topic(home: Path) -> None:
    made = sealcast("topic", "register", "orders", "--schema", "schema.json", "--as", "alice", "--json").document
    assert made["owner"] == "alice" and made["access"] == "granted" and made["parameters"]["key_bits"] == 256
    assert sealcast("grant", "orders", "bob", "publish", "--as", "alice").code == 0
    assert sealcast("token", "request", "orders", "--as", "bob").code == 0
    assert sealcast("revoke", "orders", "bob", "publish", "--as", "alice", "--json").document["may"] == []
    refused = sealcast("token", "request", "orders", "--as", "bob", "--json")
    assert refused.code == 1 and refused.document["reason"] == "right"


def test_a_server_answers_from_its_own_process(home: Path) -> None:
    """The asking process has no key but its own entity's: centers', brokers' and nodes' are the server's."""
    server = spawn("serve", "--json", cwd=home)
    assert server.stderr is not None
    while "serving" not in (line := server.stderr.readline()):
        assert line, "it has not started"
    (home / "secrets").rename(home / "elsewhere")
    try:
        asked = sealcast("token", "request", "quotes", "--as", "alice", "--json")
        assert asked.code == 0, asked.err
        assert sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 3").code == 0
    finally:
        (home / "elsewhere").rename(home / "secrets")
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate()
    assert server.returncode == 0, err
    assert '"answered": 1' in out
    realm = Realm(home)
    stored = realm.state().subscription("alice-1")
    assert OwnerFilters(realm.identity("alice")).text(realm.state(), stored) == "price > 3"
