"""The plug-in inside a real mosquitto: each client gets what a plaintext oracle says, in order, and nothing else."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.mqtt.clients import Listener
from tests.mqtt.mosquitto import Mosquitto
from tests.mqtt.plugged import CLIENTS, END, EVENTS, PUBLISHER, Plugged, made, numbers, truth, world_of
from tests.mqtt.plugged import plugged as plugged
from tests.mqtt.plugged import plugin as plugin
from tests.mqtt.sealed_world import World, message, number_in
from tests.protections.searchable.world import rekeyed

V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
#: Events that are under way at most: mosquitto lets go of a client that is too far behind.
SPAN = 500


def exactly_what_they_asked_for(
    server: Mosquitto, world: World, count: int, version: MQTTProtocolVersion, qos: int, away: int = 0
) -> None:
    """While every second span is published, `away` of the clients are gone, and come back after it. At QoS 0, MQTT
    keeps nothing for them: they get everything else, and nothing of that span."""
    events, payloads = made(world, count)
    wanted = {user: truth(world, user, events) for user in (*CLIENTS, None)}
    ends = dict.fromkeys(wanted, 0)
    for user in CLIENTS[:away] if not qos else ():
        wanted[user] = [number for number in wanted[user] if number // SPAN % 2 == 0]
    with ExitStack() as stack:
        publisher = stack.enter_context(Listener(server.port, PUBLISHER, version=version))
        listeners = [
            stack.enter_context(Listener(server.port, user, version=version, session=user if away else None))
            for user in wanted
        ]
        for listener in listeners:
            listener.subscribe("#", qos)
        for at in range(0, count, SPAN):
            gone = listeners[:away] if at // SPAN % 2 else []
            for listener in gone:
                listener.__exit__(None, None, None)
            publisher.publish(EVENTS, payloads[at : at + SPAN], qos)
            publisher.publish(END, [b"end"], qos)
            # Those who stayed first: when they have the end, the server is done with the span, also at QoS 0.
            for listener in [*listeners[len(gone) :], *gone]:
                if listener in gone:
                    listener.__enter__()
                ends[listener.user] += bool(qos or listener not in gone)
                listener.wait_for(sum(number < at + SPAN for number in wanted[listener.user]) + ends[listener.user])
        for listener in listeners:
            assert numbers(listener) == wanted[listener.user], listener.user
            assert [topic for topic, _ in listener.got].count(END) == ends[listener.user], listener.user
            bodies = [payload for topic, payload in listener.got if topic == EVENTS]
            assert all(body == payloads[number_in(body)] for body in bodies)
    assert 0 < sum(map(len, wanted.values())) < count * len(CLIENTS)


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1])
def test_each_client_gets_what_it_asked_for(plugged: Plugged, version: MQTTProtocolVersion, qos: int) -> None:
    world = world_of(CLIENTS)
    exactly_what_they_asked_for(plugged.start(world), world, 500, version, qos, away=7)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1])
def test_each_client_gets_what_it_asked_for_of_many(plugged: Plugged, version: MQTTProtocolVersion, qos: int) -> None:
    world = world_of(CLIENTS, filters=4)
    exactly_what_they_asked_for(plugged.start(world), world, 50_000, version, qos, away=7)


@pytest.mark.parametrize("tag_bits", [0, 3, 32])
def test_tags_of_any_size_change_no_answer(plugged: Plugged, tag_bits: int) -> None:
    world = world_of(CLIENTS, tag_bits=tag_bits)
    exactly_what_they_asked_for(plugged.start(world), world, 200, V311, 0)


def test_fresh_trapdoors_match_like_reused_ones(plugged: Plugged) -> None:
    world = world_of(CLIENTS)
    server = plugged.start(world)
    events = [world.event() for _ in range(50)]
    payloads = [
        message(1, PUBLISHER, world.block(PUBLISHER, values, fresh=True), number.to_bytes(4, "big"))
        for number, values in enumerate(events)
    ]
    with Listener(server.port, PUBLISHER) as publisher, ExitStack() as stack:
        listeners = [stack.enter_context(Listener(server.port, user)).subscribe("#", 1) for user in CLIENTS]
        publisher.publish(EVENTS, payloads, 1)
        publisher.publish(END, [b"end"], 1)
        for listener in listeners:
            listener.wait_for(len(truth(world, listener.user, events)) + 1)
            assert numbers(listener) == truth(world, listener.user, events)


def test_anothers_filter_under_ones_own_name_matches_nothing(plugged: Plugged) -> None:
    """The broker re-encrypts a copy to the very same points. Whose it is, is hashed with them."""
    world, (one, thief) = World(), CLIENTS[:2]
    world.subscribe(one, "level >= 0")
    world.subscribe(thief, "level < 10 AND kind = 'a'")
    (_, _, _, theirs), (_, epoch, condition, _) = world.filters
    world.filters.append((thief, epoch, condition, rekeyed(theirs, world.keys(thief)._half)))
    server = plugged.start(world)
    events, payloads = made(world, 100)
    with Listener(server.port, PUBLISHER) as publisher, ExitStack() as stack:
        listeners = [stack.enter_context(Listener(server.port, user)).subscribe("#", 1) for user in (one, thief)]
        publisher.publish(EVENTS, payloads, 1)
        publisher.publish(END, [b"end"], 1)
        for listener in listeners:
            listener.wait_for(len(truth(world, listener.user, events)) + 1)
            assert numbers(listener) == truth(world, listener.user, events)
    assert len(truth(world, thief, events)) < len(truth(world, one, events))


# --- clients that were away ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("restarted", [False, True])
def test_clients_that_were_away_get_theirs_when_they_come_back(
    plugged: Plugged, version: MQTTProtocolVersion, restarted: bool
) -> None:
    """mosquitto asks again about what waited, and drops what the plug-in then refuses."""
    world = world_of(CLIENTS)
    server = plugged.start(world, "persistence true", f"persistence_location {plugged.directory}/")
    events, payloads = made(world, 300)
    away = [Listener(server.port, user, version=version, session=user) for user in CLIENTS]
    for listener in away:
        with listener:
            listener.subscribe("#", 1)
    with Listener(server.port, PUBLISHER, version=version) as publisher:
        publisher.publish(EVENTS, payloads, 1)
        publisher.publish(END, [b"end"], 1)
    if restarted:
        plugged.stop(signal.SIGTERM)
        plugged.start()
    for listener in away:
        wanted = truth(world, listener.user, events)
        with listener:
            listener.wait_for(len(wanted) + 1)
        assert numbers(listener) == wanted


def test_what_waited_since_an_earlier_epoch_still_arrives(plugged: Plugged) -> None:
    world = world_of(CLIENTS[:1])
    server = plugged.start(world)
    events, payloads = made(world, 100)
    away = Listener(server.port, CLIENTS[0], session="away")
    with away:
        away.subscribe(EVENTS, 1)
    with Listener(server.port, PUBLISHER) as publisher:
        publisher.publish(EVENTS, payloads, 1)
        world.subscribe(CLIENTS[0], "level < 10", epoch=2)
        plugged.replace(world, 2)
        later, more = made(world, 100, epoch=2)
        publisher.publish(EVENTS, more, 1)
    wanted = truth(world, CLIENTS[0], events) + truth(world, CLIENTS[0], later, epoch=2)
    with away:
        away.wait_for(len(wanted))
    assert numbers(away) == wanted


# --- a new table while the server runs ----------------------------------------------------------------------------


def test_a_new_subscription_counts_from_the_next_table_on(plugged: Plugged) -> None:
    world = world_of(CLIENTS[:2])
    server = plugged.start(world)
    with Listener(server.port, CLIENTS[2]) as late, Listener(server.port, PUBLISHER) as publisher:
        late.subscribe("#", 1)
        _, payloads = made(world, 100)
        publisher.publish(EVENTS, payloads, 1)
        world.subscribe(CLIENTS[2], "level >= 0")
        plugged.replace(world, 2)
        events, payloads = made(world, 100)
        publisher.publish(EVENTS, payloads, 1)
        publisher.publish(END, [b"end"], 1)
        wanted = truth(world, CLIENTS[2], events)
        late.wait_for(len(wanted) + 1)
        assert numbers(late) == wanted


def test_a_revoked_reader_gets_nothing_from_the_next_table_on(plugged: Plugged) -> None:
    """Neither while it is connected, nor what waits for it. mosquitto drops what waits without giving its place among
    the messages under way free, so that the rest would wait for the next connection if their number had a limit."""
    world = World()
    for user in CLIENTS[:3]:
        world.subscribe(user, "level >= 0")
    server = plugged.start(world, "max_inflight_messages 0")
    events, payloads = made(world, 50)
    away = Listener(server.port, CLIENTS[1], session="away")
    with away:
        away.subscribe("#", 1)
    with ExitStack() as stack:
        publisher, revoked, other = (
            stack.enter_context(Listener(server.port, user)) for user in (PUBLISHER, CLIENTS[0], CLIENTS[2])
        )
        revoked.subscribe("#", 1)
        other.subscribe("#", 1)
        publisher.publish(EVENTS, payloads, 1)
        revoked.wait_for(len(truth(world, CLIENTS[0], events)))
        plugged.replace(world, 2, without=CLIENTS[:2])
        publisher.publish(EVENTS, payloads, 1)
        publisher.publish(END, [b"end"], 1)
        for listener, times in ((revoked, 1), (other, 2)):
            wanted = truth(world, listener.user, events) * times
            listener.wait_for(len(wanted) + 1)
            assert numbers(listener) == wanted
    with away:
        away.wait_for(1)
    assert [topic for topic, _ in away.got] == [END]


def test_a_revoked_publisher_is_refused_from_the_next_table_on(plugged: Plugged) -> None:
    world = World()
    world.subscribe(CLIENTS[0], "level >= 0 OR level < 100")
    server = plugged.start(world)
    events, payloads = made(world, 20)
    with Listener(server.port, CLIENTS[0]) as reader, Listener(server.port, PUBLISHER) as publisher:
        reader.subscribe("#", 1)
        publisher.publish(EVENTS, payloads, 1)
        plugged.replace(world, 2, without=[PUBLISHER])
        publisher.client.publish(EVENTS, payloads[0], 0)
        server.wait_for("refused a message: no right to publish")
        with Listener(server.port, CLIENTS[1]) as another:  # mosquitto ends the connection of who was refused
            another.publish(END, [b"end"], 1)
        wanted = truth(world, CLIENTS[0], events)
        reader.wait_for(len(wanted) + 1)
        assert numbers(reader) == wanted


# --- wills, retained messages, sharing ----------------------------------------------------------------------------


def test_a_will_goes_to_who_asked_for_it(plugged: Plugged) -> None:
    world = World()
    world.subscribe(CLIENTS[0], "alarm = TRUE")
    world.subscribe(CLIENTS[1], "alarm = FALSE")
    server = plugged.start(world)
    will = message(1, PUBLISHER, world.block(PUBLISHER, {"alarm": True}), (7).to_bytes(4, "big"))
    with ExitStack() as stack:
        asked, other = (stack.enter_context(Listener(server.port, user)).subscribe("#", 1) for user in CLIENTS[:2])
        dying = Listener(server.port, PUBLISHER)
        dying.client.will_set(EVENTS, will, 1)
        with dying:
            dying.client._sock_close()
        asked.wait_for(1)
        with Listener(server.port, PUBLISHER) as publisher:
            publisher.publish(END, [b"end"], 1)
        other.wait_for(1)
        assert numbers(asked) == [7]
        assert [topic for topic, _ in other.got] == [END]


def test_a_retained_event_goes_to_later_subscribers_who_asked_for_it(plugged: Plugged) -> None:
    world = World()
    world.subscribe(CLIENTS[0], "alarm = TRUE")
    world.subscribe(CLIENTS[1], "alarm = FALSE")
    server = plugged.start(world)
    kept = message(1, PUBLISHER, world.block(PUBLISHER, {"alarm": True}), (7).to_bytes(4, "big"))
    with Listener(server.port, PUBLISHER) as publisher:
        publisher.client.publish(EVENTS, kept, 1, retain=True).wait_for_publish(10)
        publisher.client.publish(END, b"end", 1, retain=True).wait_for_publish(10)
    with Listener(server.port, CLIENTS[0]) as asked, Listener(server.port, CLIENTS[1]) as other:
        asked.subscribe("#", 1).wait_for(2)
        other.subscribe("#", 1).wait_for(1)
        assert numbers(asked) == [7]
        assert [topic for topic, _ in other.got] == [END]


def test_other_topics_are_for_the_acl_file_to_decide(plugged: Plugged) -> None:
    server = plugged.start(world_of(CLIENTS[:1]))
    with Listener(server.port, None) as anybody:
        anybody.subscribe("#", 1)
        others = [f"{EVENTS}/more", "sealcast/v1/fleet/mail/ann", "sealcast/v1/events", "sealcast", "plain"]
        for topic in others:
            anybody.publish(topic, [b"hello"], 1)
        anybody.wait_for(len(others))
        assert [topic for topic, _ in anybody.got] == others


@pytest.mark.parametrize(
    ("user", "topic", "granted"),
    [
        (CLIENTS[0], EVENTS, True),
        (CLIENTS[0], f"$share/some/{EVENTS}", False),
        (CLIENTS[0], "$share/some/sealcast/v1/+/events", False),
        (CLIENTS[0], "$share/some/sealcast/v1/#", False),
        (CLIENTS[0], "$share/some/plain/#", True),
        (None, EVENTS, False),
        (None, "#", True),
    ],
)
def test_who_may_subscribe_to_what(plugged: Plugged, user: str | None, topic: str, granted: bool) -> None:
    server = plugged.start(world_of(CLIENTS[:1]))
    with Listener(server.port, user, version=V5) as listener:
        assert (listener.subscribe(topic, 1).granted == [1]) is granted
