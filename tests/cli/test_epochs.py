"""Commands about keys, rights and certificates; and the document that shows them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sealcast.cli.maintain import upkeep
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast, write_lines
from tests.clients.pump import pump


def test_rotation_by_name_and_when_due(home: Path) -> None:
    assert "is in epoch 2 since" in sealcast("topic", "rotate", "quotes").out
    assert sealcast("topic", "show", "quotes", "--json").document["epoch"] == 2
    nothing = sealcast("topic", "rotate", "--due")
    assert (nothing.code, nothing.out) == (0, "") and "nothing is due" in nothing.err
    made = sealcast(
        "topic", "create", "few", "--schema", "schema.json", "--messages-per-key", "1", "--json", "--access", "members"
    ).document
    assert made["parameters"]["messages_per_key"] == 1
    events = write_lines(home / "events.jsonl", {"attributes": {}, "payload": "x"})
    assert sealcast("subscription", "add", "few", "--as", "alice", "--filter", "TRUE").code == 0
    assert sealcast("pub", "few", "--as", "nyse", "--file", events).code == 0
    pump(Realm(home), "few")
    (rotated,) = sealcast("topic", "rotate", "--due", "--json").document["rotated"]
    assert (rotated["topic"], rotated["epoch"], rotated["why"]) == ("few", 2, "its key has sealed 1 messages of 1")
    for wrong in (("topic", "rotate"), ("topic", "rotate", "quotes", "--due")):
        assert sealcast(*wrong).code == 2
    refused = sealcast("topic", "rotate", "quotez")
    assert refused.code == 1 and "did you mean 'quotes'?" in refused.err


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        (("--key-size", "64"), "key_bits"),
        (("--key-size", "many"), "key_bits"),
        (("--token-hash", "md5"), "token_hash"),
        (("--key-lifetime", "1s"), "key_lifetime_s"),
        (("--messages-per-key", "0"), "messages_per_key"),
        (("--token-lifetime", "2y"), "token_lifetime_s"),
        (("--grace", "30d"), "grace_s"),
        (("--stale-after", "1s"), "max_skew_s"),
    ],
)
def test_bad_key_parameters_are_refused_by_name(home: Path, options: tuple[str, str], parameter: str) -> None:
    refused = sealcast("topic", "create", "bad", "--schema", "schema.json", *options, "--json", "--access", "members")
    assert refused.code == 1
    assert (refused.document["error"], refused.document["parameter"]) == ("parameter", parameter)
    assert refused.document["hint"] and "bad" not in Realm(home).state().topics


def test_a_topic_is_created_with_its_parameters(home: Path) -> None:
    options = ("--key-size", "128", "--token-hash", "sha-384", "--key-lifetime", "7d", "--owner", "alice")
    shown = sealcast(
        "topic", "create", "small", "--schema", "schema.json", *options, "--json", "--access", "members"
    ).document
    assert (
        shown["parameters"] | {"key_bits": 128, "token_hash": "sha-384", "key_lifetime_s": 604_800}
        == shown["parameters"]
    )
    assert (shown["center"], shown["owner"], shown["brokers"]) == ("center", "alice", ["broker"])
    refused = sealcast("topic", "create", "t", "--schema", "schema.json", "--center", "centre", "--access", "members")
    assert refused.code == 1 and "did you mean 'center'?" in refused.err
    assert (
        sealcast("topic", "create", "t", "--schema", "schema.json", "--grace", "soon", "--access", "members").code == 1
    )


def test_grants_have_terms(home: Path) -> None:
    sealcast("topic", "create", "orders", "--schema", "schema.json", "--access", "granted")
    given = sealcast("grant", "orders", "alice", "publish", "--for", "30d", "--template", "symbol = 'IBM'", "--json")
    assert given.document["may"] == ["publish"]
    term = given.document["terms"]["publish"]
    assert term["template"] == "symbol=IBM" and term["until"] is not None
    said = sealcast("grant", "orders", "bob", "subscribe", "--from", "2040-01-01", "--until", "2040-02-01").out
    assert "'bob' may subscribe on 'orders', from 2040-01-01T00:00:00.000Z until 2040-02-01T00:00:00.000Z" in said
    early = sealcast("subscription", "add", "orders", "--as", "bob", "--filter", "TRUE")
    assert early.code == 1 and "its right has not begun" in early.err
    shown = sealcast("topic", "show", "orders").out
    assert "symbol=IBM" in shown and "2040-02-01" in shown
    assert sealcast("grant", "orders", "bob", "publish", "--for", "1d", "--until", "2040-01-01").code == 2
    for options, words in (
        (("--template", "colour=red"), "colour"),
        (("--for", "soon"), "is a span of time"),
        (("--until", "yesterday"), "is a time"),
        (("--from", "2041-01-01", "--until", "2040-01-01"), "ends before it begins"),
    ):
        refused = sealcast("grant", "orders", "bob", "publish", *options)
        assert refused.code == 1 and words in refused.err


def test_certificates_are_renewed_and_revoked(home: Path) -> None:
    def until(name: str) -> str:
        entities = sealcast("entity", "list", "--json").document["entities"]
        return str(next(e["certificate"]["serial"] for e in entities if e["entity"] == name))

    before = until("alice")
    assert "has a certificate until" in sealcast("entity", "renew", "alice").out
    assert until("alice") != before
    assert "nothing is due" in sealcast("entity", "renew", "--due").err
    assert sealcast("entity", "renew").code == 2
    assert sealcast("entity", "revoke", "alice", "--cause", "key-compromise").code == 0
    refused = sealcast("entity", "renew", "alice")
    assert refused.code == 1 and "it gets no certificate" in refused.err


def test_those_who_run_a_realm_are_enrolled_one_by_one(home: Path) -> None:
    made = sealcast("entity", "enrol", "broker-2", "--role", "broker", "--json").document["entities"][0]
    assert made["roles"] == ["broker"] and made["keys"] == str(home / "secrets" / "brokers" / "broker-2.key")
    assert made["topics"] == {}
    assert "in epoch 1" in sealcast("topic", "serve", "quotes", "broker-2").out
    assert sealcast("topic", "show", "quotes", "--json").document["brokers"] == ["broker", "broker-2"]
    assert sealcast("entity", "enrol", "center-2", "--role", "key-center").code == 0
    assert sealcast("entity", "enrol", "discovery-3", "--role", "discovery").code == 0
    assert sealcast("entity", "enrol", "a", "b", "--role", "broker").code == 2
    assert sealcast("entity", "enrol", "a", "--role", "authority").code == 2
    refused = sealcast("topic", "serve", "quotes", "alice")
    assert refused.code == 1 and "'alice' is no broker" in refused.err


def test_maintenance_does_what_is_due(home: Path) -> None:
    assert sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "TRUE").code == 0
    nothing = sealcast("maintain")
    assert (nothing.code, nothing.out) == (0, "") and "nothing is due" in nothing.err
    here = Realm(home)
    at = here.clock()
    before = here.state()
    later = Realm(home, clock=lambda: at + 46 * 86_400 * 1_000_000)
    done = later.maintain()
    assert set(done.certificates) == set(before.entities)
    assert done.rotated.keys() == {"quotes"}
    assert (
        later.state().credentials_of("quotes")["alice-1"].expires_us
        > before.credentials_of("quotes")["alice-1"].expires_us
    )
    assert not later.maintain()
    (home / "secrets").rename(home / "elsewhere")
    assert not Realm(home, clock=lambda: at + 200 * 86_400 * 1_000_000).maintain(), "who has no secrets does nothing"


def test_a_run_does_what_is_due_meanwhile(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sealcast("subscription", "add", "quotes", "--as", "alice", "--filter", "TRUE").code == 0
    at = [Realm(home).clock()]
    realm = Realm(home, clock=lambda: at[0])

    def expires() -> int:
        return realm.state().credentials_of("quotes")["alice-1"].expires_us

    before, deadline = expires(), time.monotonic() + 30
    with upkeep(realm, every_s=0.01):
        assert expires() == before, "nothing was due yet"
        at[0] += 20 * 3600 * 1_000_000
        while expires() == before and time.monotonic() < deadline:
            time.sleep(0.01)
    assert expires() > before and "new tokens for 1 subscriber" in capsys.readouterr().err
    (home / "registry.sqlite").rename(home / "registry.gone")
    with upkeep(Realm(home)):
        assert "what is due was not done" in capsys.readouterr().err, "said, and no reason to stop"
