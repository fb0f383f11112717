"""The commands of clients, from a home: by the gateway's address, by the home's directory, and by SEALCAST_REALM."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer

from sealcast.cli import homes
from sealcast.cli.main import app
from sealcast.control import asking, correspondence, desk
from sealcast.errors import Misuse, NotFound
from sealcast.log.control_topics import ControlPlane
from sealcast.transports.address import GatewayAddress, home_of
from sealcast.trust.realm.changes import Right
from tests.cli.shell import sealcast, write_lines
from tests.remote.world import SCHEMA, TOPIC, Served, served


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("commands"), "payload") as made:
        yield made


def test_a_day_of_a_client(world: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, nyse = world.home("ann"), world.home("nyse")
    monkeypatch.setenv("SEALCAST_HOME", str(ann))
    at = ("--realm", world.address)
    assert [t["topic"] for t in sealcast("topic", "list", "--json", *at).document["topics"]] == [TOPIC]
    assert sealcast("topic", "show", TOPIC, *at).code == 0
    found = sealcast("topic", "find", "quotes", "--as", "ann", "--json", *at)
    assert TOPIC in found.out, found.err
    assert sealcast("explain", TOPIC, *at).code == 0
    assert sealcast("token", "request", TOPIC, "--as", "ann", "--right", "subscribe", *at).code == 0
    added = sealcast("subscription", "add", TOPIC, "--as", "ann", "--filter", "price < 9", "--json", *at)
    assert added.code == 0, added.err
    (id,) = [each["id"] for each in added.document["subscriptions"]]
    listed = sealcast("subscription", "list", "--as", "ann", "--json", *at).document["subscriptions"]
    assert [each["id"] for each in listed] == [id]

    lines = write_lines(tmp_path / "events", {"attributes": {"price": 3}, "payload": "hello"}, {"attributes": {}})
    published = sealcast("pub", TOPIC, "--as", "nyse", "--file", lines, "--json", "--realm", nyse)
    assert published.document["published"] == 2 and published.document["queued"] == 0, published.err
    world.pump()
    monkeypatch.setenv("SEALCAST_REALM", world.address)
    assert sealcast("status", "--json").document["topics"][0]["lag"] == {"ann": 1}
    got = sealcast("sub", TOPIC, "--as", "ann")
    assert [line["payload"] for line in got.lines] == ["hello"], got.err
    assert sealcast("sub", TOPIC, "--as", "ann").lines == []

    head = sealcast("registry", "head", "--as", "ann", "--json").document["head"]
    assert sealcast("registry", "compare", head, "--json", "--realm", nyse).document["verdict"] == "same"
    removed = sealcast("subscription", "remove", id, "--json")
    assert removed.code == 0, removed.err
    assert sealcast("subscription", "list", "--json").document["subscriptions"] == []


def test_what_needs_the_realm_itself_says_so(world: Served) -> None:
    home = world.home("ann")
    for command in (["entity", "enrol", "eve"], ["grant", TOPIC, "ann", "publish"], ["check"]):
        refused = sealcast(*command, "--realm", home)
        assert refused.code == 1 and "needs the realm itself" in refused.err, (command, refused.err)
    refused = sealcast("run", "--once", "--realm", home)
    assert refused.code == 1 and "no broker has joined the realm" in refused.err, refused.err


def _example(command: str) -> list[str]:
    """The words of a command's own example."""
    found: Any = typer.main.get_command(app)
    for word in command.split():
        with typer.Context(found) as context:
            found = found.get_command(context, word) if hasattr(found, "get_command") else found
    line = re.search(r"sealcast ([^;]+)", found.epilog)
    assert line is not None
    return shlex.split(line[1])


@pytest.mark.parametrize("command", sorted(homes.NEED_THE_REALM))
def test_each_command_that_needs_the_realm_is_refused_in_a_home(
    world: Served, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quotes.json").write_text(json.dumps({"attributes": [{"name": "price", "type": "int"}]}))
    refused = sealcast(*_example(command), "--realm", world.home("ann"))
    assert refused.code == 1 and "needs the realm itself" in refused.err, refused.err


def test_hints_in_a_home_say_who_does_what_is_refused_there(world: Served) -> None:
    home = world.home("ann")
    world.realm.revoke(TOPIC, "ann", [Right.PUBLISH])
    refused = sealcast("pub", TOPIC, "--as", "ann", "price=3", "--realm", home)
    assert refused.code == 1, refused
    hint = refused.err.partition("hint:")[2]
    assert "sealcast grant" in hint and hint.strip().startswith("this is for whoever administers the realm"), hint
    # Where the realm is, the same hint is for whoever reads it.
    assert homes.remedy("sealcast grant quotes ann publish", str(world.realm.paths.root)).startswith("sealcast grant")
    assert homes.remedy("sealcast subscription add quotes", str(home)) == "sealcast subscription add quotes"


def test_an_address_that_nobody_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEALCAST_HOME", str(tmp_path / "none"))
    refused = sealcast("topic", "list", "--realm", "sealcast://gateway.example:7443")
    assert refused.code == 1 and "sealcast join" in refused.err
    assert "no gateway's address" in sealcast("topic", "list", "--realm", "sealcast://gateway.example").err


def test_where_a_home_is() -> None:
    address = GatewayAddress.parse("sealcast://[::1]:7443")
    assert (address.host, address.port, str(address)) == ("::1", 7443, "sealcast://[::1]:7443")
    assert home_of(address, {"HOME": "/h"}) == Path("/h/.local/share/sealcast/--1_7443")
    assert home_of(address, {"HOME": "/h", "XDG_DATA_HOME": "/d"}) == Path("/d/sealcast/--1_7443")
    assert home_of(address, {"SEALCAST_HOME": "/own"}) == Path("/own")


def test_a_file_of_subscriptions_is_added_from_afar_or_ended_again(
    world: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = world.home("ann")
    add = ("subscription", "add", TOPIC, "--as", "ann", "--json", "--realm", home, "--file")
    asked = write_lines(tmp_path / "asked", {"filter": "price < 9", "id": "f-1"}, {"filter": "price > 9", "id": "f-2"})
    assert [each["id"] for each in sealcast(*add, asked).document["subscriptions"]] == ["f-1", "f-2"]

    more = write_lines(tmp_path / "more", {"filter": "price < 3", "id": "g-1"}, {"filter": "price > 3", "id": "g-2"})
    subscribe = desk._subscribe

    def full(wanted: Any, *others: Any) -> Any:
        if wanted.id == "g-2":
            raise Misuse("the desk has enough")
        return subscribe(wanted, *others)

    monkeypatch.setattr(desk, "_subscribe", full)
    refused = sealcast(*add, more)
    assert refused.code == 1, "the second one is refused by the broker"
    listed = sealcast("subscription", "list", "--as", "ann", "--json", "--realm", home).document["subscriptions"]
    assert [each["id"] for each in listed] == ["f-1", "f-2"], "and the first one was ended again"
    assert sealcast("subscription", "remove", "f-1", "f-2", "--realm", home).code == 0


def test_an_owner_registers_a_topic_and_decides_who_may_use_it(world: Served) -> None:
    """From afar as beside the realm: an owner has nothing but its own keys, and asks the key center."""
    home, schema = world.home("ann"), world.directory / "rates.json"
    schema.write_text(json.dumps(SCHEMA.to_json()))
    at = ("--as", "ann", "--json", "--realm", home)
    registered = sealcast("topic", "register", "rates", "--schema", schema, *at)
    assert registered.code == 0 and registered.document["owner"] == "ann", registered.err
    assert sealcast("grant", "rates", "bob", "publish", "subscribe", *at).document["may"] == ["publish", "subscribe"]
    assert sealcast("revoke", "rates", "bob", "publish", *at).document["may"] == ["subscribe"]
    assert sealcast("topic", "rotate", "rates", *at).document["rotated"][0]["epoch"] == 2
    advertised = sealcast("topic", "advertise", "rates", "--tag", "kind=fixings", *at)
    assert advertised.code == 0 and not advertised.document["failed"], advertised.err
    found = sealcast("topic", "find", "rates", "--as", "bob", "--json", "--realm", world.home("bob"))
    assert [each["owner"] for each in found.document["topics"]] == ["ann"], found.err
    # Nobody else's topic, and nothing that is for the administrator.
    for command in (["grant", TOPIC, "bob", "publish"], ["topic", "rotate", TOPIC]):
        refused = sealcast(*command, *at)
        assert refused.code == 1 and refused.document["error"] != "misuse", (command, refused.out)
    assert "needs the realm itself" in sealcast("grant", "rates", "bob", "publish", "--realm", home).err
    assert "needs the realm itself" in sealcast("topic", "rotate", "rates", "--realm", home).err


@pytest.mark.parametrize("renewed", [True, False])
def test_who_lives_on_is_answered_after_its_topic_was_swept(
    world: Served, renewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who serve drop topics for answers that are an hour old; so one who still lives takes a new one before."""
    with world.side.interests(world.client("bob"), TOPIC, "bob") as interests:
        interests.add("price < 9")
        with closing(ControlPlane(world.realm.paths.root)) as plane:
            assert plane.sweep(older_than_us=-1_000_000), "it waits on one"
        if renewed:
            monkeypatch.setattr(asking, "OLD_S", 0.0)
            interests.add("price < 8")
        else:
            with pytest.raises(NotFound, match="no such control topic"):
                interests.add("price < 8")


def test_a_question_keeps_its_topic_while_another_finds_out_where_it_goes(
    world: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic for answers is replaced when it has taken many. Where a service is, is asked over the same topic."""
    monkeypatch.setattr(asking, "_ENOUGH", 3)  # as many as two nodes and one service answer
    monkeypatch.setattr(correspondence, "FOUND_FOR_S", 0.0)
    with world.side.interests(world.client("xetra"), TOPIC, "xetra") as interests:
        for price in range(1, 6):
            interests.add(f"price < {price}")
