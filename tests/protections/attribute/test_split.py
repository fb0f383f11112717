"""Split credentials (k_D): no parent routes by a subscription's own label, and everything still arrives, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sealcast import Realm
from sealcast.errors import ParameterRejected
from sealcast.model.protection import AttributeBased, protection_of
from sealcast.model.schema import Schema
from sealcast.primitives.secrets import Secret
from sealcast.protections.attribute.credentials import EventSpace
from sealcast.protections.attribute.peering.host import PeerHost
from sealcast.protections.attribute.peering.places import SEATS_EACH, split_labels
from sealcast.protections.attribute.scheme import Label
from sealcast.protections.attribute.spaces import CredentialSpace
from tests.cli.shell import sealcast
from tests.overlay.links import until
from tests.protections.attribute.asked import SCHEMA as WIDE
from tests.protections.attribute.test_peer_processes import SCHEMA, TOPIC, passed_on
from tests.protections.attribute.test_peering import hosted, inbox, places, publish

HEAT = EventSpace(SCHEMA).spaces["heat"]


def labels_of(heat: int) -> set[Label]:
    return {label for label in HEAT.labels(SCHEMA.parse({"heat": heat})) if label is not None}


def top(space: CredentialSpace, schema: Schema, **value: object) -> Label:
    """The label right below the root that an event with this value has."""
    return next(found for found in space.labels(schema.parse(value))[1:] if found is not None)


@pytest.mark.parametrize("least", range(1, 9))
def test_parts_hold_what_the_whole_holds_and_nothing_twice(least: int) -> None:
    whole = top(HEAT, SCHEMA, heat=9)
    parts = split_labels(HEAT, [whole], least, Secret(bytes(32)))
    assert len(parts) == least and (whole in parts) == (least == 1)
    for heat in range(16):
        assert len(labels_of(heat) & set(parts)) == (heat >= 8)


def test_which_label_is_split_is_the_peers_secret_and_stays_so() -> None:
    whole = top(HEAT, SCHEMA, heat=9)
    splits = {tuple(split_labels(HEAT, [whole], 3, Secret(bytes([n]) * 32))) for n in range(32)}
    assert len(splits) == 2, "one half of it, or the other"
    assert split_labels(HEAT, [whole], 5, Secret(bytes(32))) == split_labels(HEAT, [whole], 5, Secret(bytes(32)))


def test_what_cannot_be_split_stays_whole() -> None:
    leaf = HEAT.labels(SCHEMA.parse({"heat": 9}))[-1]
    assert leaf is not None and split_labels(HEAT, [leaf], 4, Secret(bytes(32))) == [leaf]
    spaces = EventSpace(WIDE).spaces
    ending = next(space for name, space in spaces.items() if name != "ward" and space.attributes == ("ward",))
    label = top(ending, WIDE, ward="icu")
    assert split_labels(ending, [label], 4, Secret(bytes(32))) == [label]
    text = spaces["ward"]
    assert len(split_labels(text, [top(text, WIDE, ward="icu")], 4, Secret(bytes(32)))) <= SEATS_EACH


def test_splitting_is_for_routing() -> None:
    assert AttributeBased(routing=True, split=4).summary.endswith("routing by tokens, split into 4")
    refused: list[dict[str, object]] = [{"split": 2}, {"routing": True, "split": 0}, {"routing": True, "split": 17}]
    for settings in [*refused, {"routing": True, "split": True}, {"tags": "other"}]:
        with pytest.raises(ParameterRejected):
            protection_of("attribute", settings)


def test_the_command_says_what_it_makes(tmp_path: Path) -> None:
    home = Realm.create(tmp_path / "realm").paths.root
    schema = tmp_path / "schema.json"
    schema.write_text('{"attributes": [{"name": "heat", "type": "int", "min": 0, "max": 15}]}')
    options = ("--schema", schema, "--protection", "attribute", "--realm", home)
    made = sealcast("topic", "create", "one", *options, "--routing", "--split", "3", "--tags", "paper", "--json")
    assert made.code == 0, made.err
    assert (made.document["settings"]["split"], made.document["settings"]["tags"]) == (3, "paper")
    alone = sealcast("topic", "create", "two", *options, "--split", "3")
    assert alone.code == 1 and "give --routing, too" in alone.err


# --- through processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", ["keyed", "paper"])
def test_parts_stand_below_different_parents_and_each_gets_its_half(tmp_path: Path, tags: str) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["pub", "pump", "hot"])
    protection = protection_of("attribute", {"routing": True, "split": 2, "tags": tags})
    realm.create_topic(TOPIC, SCHEMA, protection=protection, access="members")
    realm.subscribe(TOPIC, "hot", "heat >= 8")
    own = places(realm, "hot")
    assert len(own.seats) == 2 and len({own.token(seat) for seat in own.seats}) == 2
    publish(realm, 9)
    publish(realm, 3, by="pump")
    halves = list[set[bytes]]()

    def to_hot() -> list[set[bytes]]:
        return [passed_on(realm, name, "hot") for name in ("pub", "pump")]

    async def scene(host: PeerHost) -> None:
        members = {member.name: member for member in host.members()}
        await until(lambda: inbox(realm, "hot") == [9], within=180)
        await until(lambda: len(parents(members["hot"])) == 2, within=180)
        await until(lambda: len(set.union(*to_hot())) == 1, within=180)
        before = set.union(*to_hot())
        publish(realm, 8, 10, 12, 13, 14, 15)
        await until(lambda: inbox(realm, "hot") == [8, 9, 10, 12, 13, 14, 15], within=180)
        await until(lambda: len(set.union(*to_hot())) == 7, within=180)
        halves.extend(found - before for found in to_hot())
        realm.rotate(TOPIC)  # tokens are of an epoch
        publish(realm, 11, 4)
        await until(lambda: inbox(realm, "hot") == [8, 9, 10, 11, 12, 13, 14, 15], within=180)

    hosted(realm, ["pub", "pump", "hot"], scene, heartbeat=20.0)
    assert sorted(map(len, halves)) == [2, 4], "8 and 10 by the one parent, 12 to 15 by the other"
    assert not halves[0] & halves[1], "and nothing by both"


def parents(member: object) -> set[str]:
    return {seat.parent.peer for seat in member.node.seats() if seat.parent is not None}  # type: ignore[attr-defined]


@pytest.mark.parametrize("split", [1, 2])
def test_a_peer_that_was_away_for_an_epoch_takes_what_parents_kept_of_it(tmp_path: Path, split: int) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.enrol_many(["pub", "pump", "hot"])
    realm.create_topic(
        TOPIC, SCHEMA, protection=protection_of("attribute", {"routing": True, "split": 2}), access="members"
    )
    realm.subscribe(TOPIC, "hot", "heat >= 8")
    publish(realm, 9)
    publish(realm, 1, by="pump")

    async def first(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "hot") == [9], within=180)

    hosted(realm, ["pub", "pump", "hot"], first)
    publish(realm, 12)

    async def without(host: PeerHost) -> None:
        await until(lambda: all(member.idle for member in host.members()), within=180)
        await asyncio.to_thread(realm.rotate, TOPIC)

    hosted(realm, ["pub", "pump"], without)

    async def back(host: PeerHost) -> None:
        await until(lambda: inbox(realm, "hot") == [9, 12], within=180)

    hosted(realm, ["pub", "pump", "hot"], back)
