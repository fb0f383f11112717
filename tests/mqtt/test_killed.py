"""What mosquitto itself loses when it is killed, with the plug-in in it: docs/mqtt-plugin.md has the figures."""

from __future__ import annotations

import signal

import pytest

from tests.mqtt.clients import Listener
from tests.mqtt.plugged import CLIENTS, EVENTS, PUBLISHER, Plugged, made, numbers, truth
from tests.mqtt.plugged import plugged as plugged
from tests.mqtt.plugged import plugin as plugin
from tests.mqtt.sealed_world import World

COUNT = 400
#: As it is installed, and as careful as it can be.
SAVING = {"by default": (), "on every change": ("autosave_interval 1", "autosave_on_changes true")}


@pytest.mark.parametrize("saving", SAVING)
def test_what_a_killed_server_loses(plugged: Plugged, saving: str) -> None:
    """All of it was acknowledged at QoS 1, for clients that are away. By default everything is gone, even the
    sessions. If every change is saved, it saves after it acknowledges, so that the last few can be gone."""
    world = World()
    for user, text in zip(CLIENTS, ("level < 50", "level >= 50", "alarm = TRUE"), strict=False):
        world.subscribe(user, text)
    options = ("persistence true", f"persistence_location {plugged.directory}/", *SAVING[saving])
    server = plugged.start(world, "max_inflight_messages 0", *options)
    events, payloads = made(world, COUNT)
    away = [Listener(server.port, user, session=user) for user in CLIENTS[:3]]
    for listener in away:
        with listener:
            listener.subscribe(EVENTS, 1)
    with Listener(server.port, PUBLISHER) as publisher:
        for payload in payloads:
            publisher.publish(EVENTS, [payload], 1)  # one after the other: each is acknowledged
        plugged.stop(signal.SIGKILL)
    plugged.start()
    for listener in away:
        wanted = truth(world, listener.user, events)
        with listener:
            listener.subscribe("end", 1)
            with Listener(server.port, PUBLISHER) as publisher:
                publisher.publish("end", [b"end"], 1)
            listener.wait_for(1)
            while listener.got[-1][0] != "end":
                listener.wait_for(len(listener.got) + 1)
        kept = numbers(listener)
        print(f"saving {saving}: {len(kept)} of {len(wanted)} survived")
        if saving == "by default":
            assert kept == []
        else:
            assert kept == wanted[: len(kept)] and len(wanted) - len(kept) <= 2
