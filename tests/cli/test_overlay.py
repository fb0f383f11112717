"""The overlay of a layered topic on the command line: made with the topic, changed by hand, shown and drawn."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from sealcast.trust.deployment import Realm
from tests.cli.shell import Result, sealcast

LAYERED = ("--schema", "schema.json", "--protection", "layered")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def layered(home: Path) -> Path:
    assert sealcast("topic", "create", "deals", *LAYERED, "--access", "members").code == 0
    return home


def done(*arguments: object) -> Result:
    result = sealcast(*arguments)
    assert result.code == 0, result.err
    return result


def test_a_layered_topic_is_usable_as_it_is_made(layered: Path) -> None:
    shown = " ".join(done("topic", "show", "deals").out.split())
    assert "settings 2 layers in secp256k1" in shown and "nodes 3, 1 of them roots" in shown
    document = done("topic", "show", "deals", "--json").document
    labels = {"slot_labels": 256, "reader_labels": 4_096}
    assert document["settings"] == {"layers": 2, "group": "secp256k1", "padded": False, **labels}
    assert document["nodes"] == {"deals-node-1": None, "deals-node-2": "deals-node-1", "deals-node-3": "deals-node-1"}
    assert document["brokers"] == ["deals-node-1"], "only a root is handed the topic's key"
    shown = done("overlay", "show", "deals", "--json").document
    assert all(broker["key"] for broker in shown["brokers"]), "all have announced a key to agree by"
    plain = done("topic", "show", "quotes", "--json").document
    assert (plain["settings"], plain["nodes"], plain["brokers"]) == ({}, {}, ["broker"])


#: What is asked for, and below which broker each one stands.
TREES: list[tuple[tuple[str, ...], list[int | None]]] = [
    (("--nodes", "0"), []),
    (("--nodes", "1"), [None]),
    (("--nodes", "4", "--fan-out", "3"), [None, 1, 1, 1]),
    (("--nodes", "4", "--fan-out", "1"), [None, 1, 2, 3]),
    (("--layers", "3"), [None, 1, 1, 2, 2, 3, 3]),
    (("--layers", "6"), [None, 1, 2, 3, 4, 5]),
    (("--group", "modp2048", "--nodes", "2", "--pad"), [None, 1]),
]


def test_trees_that_come_with_a_topic(home: Path) -> None:
    for number, (options, parents) in enumerate(TREES):
        made = done("topic", "create", f"t{number}", *LAYERED, *options, "--json", "--access", "members").document
        names = [None if at is None else f"t{number}-node-{at}" for at in parents]
        assert made["nodes"] == {f"t{number}-node-{i}": at for i, at in enumerate(names, 1)}
        assert made["settings"]["padded"] == ("--pad" in options)
        assert made["settings"]["group"] == ("modp-2048" if "modp2048" in options else "secp256k1")


def test_a_tree_by_hand(layered: Path) -> None:
    done("topic", "create", "bare", *LAYERED, "--nodes", "0", "--access", "members")
    assert "no broker yet: sealcast overlay add bare" in done("overlay", "show", "bare").err
    done("overlay", "add", "bare", "paris")
    done("overlay", "add", "bare", "lyon", "--under", "paris")
    assert "below broker 'lyon'" in done("overlay", "place", "bare", "alice", "--at", "lyon").out
    moved = done("overlay", "add", "bare", "lyon")
    assert "generation 1 of the overlay has begun" in moved.err, "alice stands below it"
    assert done("overlay", "show", "bare", "--json").document["roots"] == ["paris", "lyon"]
    assert sorted(done("topic", "show", "bare", "--json").document["brokers"]) == ["lyon", "paris"]
    gone = done("overlay", "remove", "bare", "lyon", "--json").document
    assert gone["generation"] == 2 and gone["subscribers"] == [], "below a root that left, nobody stands"


def test_the_picture_as_text(layered: Path) -> None:
    for name in ("alice", "bob"):
        done("overlay", "place", "deals", name)
    assert done("overlay", "show", "deals").out.splitlines() == [
        "deals: 2 layers in secp256k1, 3 brokers, epoch 1, generation 0",
        "publishers: none yet",
        "└─ deals-node-1     root, depth 1",
        "   ├─ deals-node-2  broker, depth 2",
        "   │  └─ alice      subscriber, depth 3, 2 layers",
        "   └─ deals-node-3  broker, depth 2",
        "      └─ bob        subscriber, depth 3, 2 layers",
    ]


def test_the_picture_as_svg_has_everyone_once_inside_and_apart(layered: Path) -> None:
    done("entity", "enrol", *(f"r{i}" for i in range(10)))
    for i in range(10):
        done("overlay", "place", "deals", f"r{i}", "--at", "deals-node-2")
    done("overlay", "place", "deals", "bob", "--at", "deals-node-3")
    done("overlay", "show", "deals", "--svg", "o.svg")
    drawn = ElementTree.parse(layered / "o.svg").getroot()
    groups = [g for g in drawn.iter(f"{SVG}g") if g.get("class")]
    names = [g.findtext(f"{SVG}text") or "" for g in groups]
    brokers = [f"deals-node-{i}" for i in (1, 2, 3)]
    assert sorted(names) == sorted(["publishers: none yet", *brokers, *(f"r{i}" for i in range(8)), "+ 2", "bob"])
    boxes = [
        {k: float(r.get(k, "")) for k in ("x", "y", "width", "height")} for g in groups for r in g.iter(f"{SVG}rect")
    ]
    width, height = float(drawn.get("width", "")), float(drawn.get("height", ""))
    for i, box in enumerate(boxes):
        assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] + box["height"] <= height
        for other in boxes[:i]:
            beside = box["x"] + box["width"] < other["x"] or other["x"] + other["width"] < box["x"]
            assert beside or box["y"] != other["y"], "boxes do not overlap"
    assert len(list(drawn.iter(f"{SVG}path"))) == len(boxes) - 1, "a tree"
    done("revoke", "deals", "r9", "subscribe")
    everyone = done("overlay", "show", "deals", "--all").out
    assert all(f"r{i} " in everyone for i in range(9)) and "r9 " not in everyone, "its place went with its right"


#: A command, the code of its refusal, and what it says.
REFUSED = [
    ("topic create t --schema schema.json --layers 2", "misuse", "--layers is for layered", "--protection layered"),
    ("topic create t --schema schema.json --pad", "misuse", "--pad is for payload or searchable or layered topics"),
    ("topic create t --schema schema.json --nodes 3", "misuse", "--nodes is for layered topics", "leave --nodes out"),
    (f"topic create t {' '.join(LAYERED)} --layers 1", "parameter", "2 to 16 layers, not 1", "hint: one layer would"),
    (f"topic create t {' '.join(LAYERED)} --layers 17", "parameter", "2 to 16 layers, not 17"),
    (f"topic create t {' '.join(LAYERED)} --group p256", "parameter", "no group 'p256'", "groups are secp256k1, modp-"),
    (
        f"topic create t {' '.join(LAYERED)} --nodes 999",
        "misuse",
        "0 to 256 brokers, not 999",
        "sealcast overlay add t",
    ),
    (f"topic create t {' '.join(LAYERED)} --fan-out 0", "misuse", "1 to 256 others below it, not 0"),
    ("overlay show quotes", "misuse", "topic 'quotes' has no overlay: its protection is 'endpoint'", "layered"),
    ("overlay add quotes paris", "misuse", "topic 'quotes' has no overlay"),
    ("overlay add deals paris --under lyon", "not-found", "'lyon' is no broker of topic 'deals'", "overlay show deals"),
    ("overlay add deals deals-node-1 --under deals-node-3", "misuse", "which stands below it", "move that one first"),
    ("overlay add deals deals-node-1", "misuse", "'deals-node-1' is a root of topic 'deals' already"),
    ("overlay add deals alice", "misuse", "entity 'alice' is no broker"),
    ("overlay remove deals paris", "not-found", "'paris' is no broker of topic 'deals'"),
    ("overlay place deals alice --at paris", "not-found", "'paris' is no broker of topic 'deals'"),
    ("overlay place deals nobody", "not-found", "there is no entity 'nobody'"),
    (
        "topic serve deals deals-node-2",
        "misuse",
        "'deals-node-2' is no root",
        "sealcast overlay add deals deals-node-2",
    ),
    ("why deals/0/0/0 alice", "not-found", "'alice' stands nowhere in the overlay", "overlay show deals"),
    ("replay deals --as alice --from 1h --filter TRUE", "misuse", "its brokers cannot read", "explain deals"),
    (
        "grant deals alice subscribe --template symbol=IBM --narrow",
        "rejected",
        "its brokers cannot read",
        "for all events",
    ),
]


def test_refusals_say_what_to_do(layered: Path) -> None:
    before = Realm(layered).registry.version()
    for command, code, *words in REFUSED:
        plain = sealcast(*command.split())
        assert (plain.code, plain.out) == (1, ""), command
        assert plain.err.startswith("refused: ") and all(word in plain.err for word in words), plain.err
        assert sealcast(*command.split(), "--json").document["error"] == code, command
    assert Realm(layered).registry.version() == before, "a refusal changes nothing"


def test_a_rotation_has_its_keys_at_once_and_maintain_mends(layered: Path) -> None:
    done("overlay", "place", "deals", "alice", "--at", "deals-node-2")
    done("topic", "rotate", "deals")
    shown = done("overlay", "show", "deals", "--json").document
    assert shown["epoch"] == 2 and all(broker["key"] for broker in shown["brokers"])
    assert done("maintain", "--json").document["layer_keys"] == {"announced": {}, "forgotten": {}}
    done("entity", "revoke", "deals-node-1")
    assert "deals-node-1" in done("overlay", "show", "deals").out.split("revoked")[0]
    assert done("maintain", "--json").document["removed_nodes"] == {"deals": ["deals-node-1"]}
    after = done("overlay", "show", "deals", "--json").document
    assert after["roots"] == ["deals-node-2", "deals-node-3"] and after["generation"] == 1
    assert set(after["roots"]) <= set(done("topic", "show", "deals", "--json").document["brokers"])


def test_a_compromised_root_is_replaced_at_once(layered: Path) -> None:
    done("compromise", "deals-node-1", "--yes")
    after = done("overlay", "show", "deals", "--json").document
    assert after["epoch"] == 2 and after["roots"] == ["deals-node-2", "deals-node-3"]
    assert all(broker["key"] for broker in after["brokers"])
    assert set(after["roots"]) <= set(done("topic", "show", "deals", "--json").document["brokers"])
    assert "quotes" in done("check").out
