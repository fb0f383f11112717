"""sealcast topic find and topic advertise: through real nodes, as entities of a real realm."""

from __future__ import annotations

import shutil
from pathlib import Path

from sealcast.control.discovery import embedded
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.restrictions import Restrictions
from sealcast.control.running import Running
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast


def found(*arguments: str) -> list[str]:
    result = sealcast("topic", "find", *arguments, "--json")
    assert result.code == 0, result.err
    return [each["topic"] for each in result.document["topics"]]


def test_find_advertise_withdraw(home: Path) -> None:
    assert found("quotes", "--as", "alice") == ["quotes"], "topics are advertised by themselves"
    shown = sealcast("topic", "find", "@price:decimal", "--as", "alice", "--json").document["topics"][0]
    assert shown["owner"] == "center" and shown["nodes"] == ["discovery-1", "discovery-2"]
    assert shown["restrictions"] == "open" and shown["schema"]["attributes"][0]["name"] == "symbol"

    advertise = ("topic", "advertise", "quotes", "--as", "center")
    kept = sealcast(*advertise, "--tag", "venue=NYSE", "--restrict", "name=alice", "--live", "30d", "--json").document
    assert kept["kept_by"] == ["discovery-1", "discovery-2"] and kept["failed"] == {}
    assert found("venue=NYSE", "--as", "alice") == ["quotes"]
    assert found("*", "--as", "bob") == found("zzz", "--as", "bob") == []
    hidden, absent = (sealcast("topic", "find", word, "--as", "bob") for word in ("quotes", "quotex"))
    assert (hidden.code, hidden.out) == (absent.code, absent.out) == (0, "")
    assert hidden.err == absent.err.replace("quotex", "quotes")

    assert "withdrawn" in sealcast(*advertise, "--withdraw").out
    assert found("*", "--as", "alice") == [], "and it is not advertised again by itself"
    refused = sealcast(*advertise, "--withdraw")
    assert refused.code == 1 and "does not advertise" in refused.err
    assert sealcast(*advertise).code == 0 and found("*", "--as", "alice") == ["quotes"]


REFUSED = [
    (("find", "*", "--as", "nobody"), "there is no entity 'nobody'"),
    (("find", "*", "--as", "alice", "--what", "castle"), "--what takes one of"),
    (("find", "@price:money", "--as", "alice"), "is no type"),
    (("find", "=x"), "NAME=VALUE"),
    (("advertise", "quotes", "--as", "alice"), "is advertised by its owner, 'center'"),
    (("advertise", "quotes", "--as", "center", "--restrict", "age=7"), "is no condition"),
    (("advertise", "quotes", "--as", "center", "--tag", "venue"), "is not a tag"),
    (("advertise", "quotes", "--as", "center", "--live", "soon"), "span of time"),
    (("advertise", "nothing", "--as", "center"), "there is no topic 'nothing'"),
]


def test_refusals_say_why(home: Path) -> None:
    for arguments, says in REFUSED:
        refused = sealcast("topic", *arguments)
        assert refused.code == 1 and says in refused.err, (arguments, refused.err)


# --- a realm's own nodes ------------------------------------------------------------------------------


def test_one_node_that_is_left_is_enough(home: Path) -> None:
    assert found("*", "--as", "alice") == ["quotes"]
    shutil.rmtree(home / "discovery" / "discovery-1")
    shown = sealcast("topic", "find", "*", "--as", "alice", "--json").document["topics"]
    assert [(t["topic"], t["nodes"]) for t in shown] == [("quotes", ["discovery-2"])]


def test_a_node_that_lost_its_store_has_everything_again_once_it_is_served(home: Path) -> None:
    assert found("*", "--as", "alice") == ["quotes"]
    shutil.rmtree(home / "discovery" / "discovery-1")
    with Running(Realm(home), ["discovery-1"]) as running:
        running.start()
    shown = sealcast("topic", "find", "*", "--as", "alice", "--json").document["topics"]
    assert [(t["topic"], t["nodes"]) for t in shown] == [("quotes", ["discovery-1", "discovery-2"])]


def test_services_are_found_by_who_may(home: Path) -> None:
    realm = Realm(home)
    center = realm.center().identity
    alone = Restrictions.parse("name=alice")
    for topic in (bytes(16), bytes([7]) * 16):
        spread = embedded.advertise_service(realm, What.KEY_CENTER, center, topic, restrictions=alone)
        assert spread is not None and len(spread.done) == 2
    with embedded.RealmDiscovery(realm, realm.identity("alice")) as discovery:
        address = discovery.service(What.KEY_CENTER, "center")()
        assert address.topic == bytes([7]) * 16, "where it listens now, and nowhere else"
        assert address.recipient.kem_public == center.kem.public
    assert found("*", "--as", "alice", "--what", "key-center") == ["center"]
    assert found("*", "--as", "bob", "--what", "any") == ["quotes"]


def test_advertisements_are_renewed_before_they_end(home: Path) -> None:
    now = Realm(home).clock()
    day = 86_400_000_000
    assert found("*", "--as", "alice") == ["quotes"]
    realm = Realm(home, clock=lambda: now + 10 * day)
    center = realm.center().identity
    assert embedded.renew_topics(realm, center) == [], "half its life is left"
    realm = Realm(home, clock=lambda: now + 50 * day)
    realm.renew("center")
    assert embedded.renew_topics(realm, center) == ["quotes"]
    realm.renew("discovery-1")
    assert embedded.renew_topics(realm, center) == []
    assert sealcast("maintain", "--json").document["advertised"] == [], "upkeep looks for what is due"


def test_a_revoked_entity_finds_nothing(home: Path) -> None:
    assert found("*", "--as", "bob") == ["quotes"]
    assert sealcast("entity", "revoke", "bob").code == 0
    refused = sealcast("topic", "find", "*", "--as", "bob")
    assert refused.code == 1 and refused.out == ""
