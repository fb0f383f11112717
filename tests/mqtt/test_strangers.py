"""`mqtt broker` and `mqtt bridge` open no port that answers another user of the machine who shows no key."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shell import spawn
from tests.cli.strangers import answers, ports_of, said
from tests.mqtt.mosquitto import Mosquitto
from tests.mqtt.servers import free_port
from tests.mqtt.test_bridge import realm_with
from tests.protections.world import TOPIC

#: How an MQTT broker takes somebody in.
_ACCEPTED = b"\x20\x02\x00\x00"


def test_the_broker_takes_nobody_in_without_a_key(tmp_path: Path) -> None:
    realm, port = realm_with(tmp_path / "realm", "searchable"), free_port()
    with spawn("mqtt", "broker", "--listen", f"127.0.0.1:{port}", "--realm", realm.paths.root) as broker:
        try:
            said(broker, "listening on")
            assert ports_of(broker, 1) == [port]
            found = answers(port)
            assert not found["mqtt"].startswith(_ACCEPTED), found
            assert found["http"] == found["noise"] == b"", found
        finally:
            broker.terminate()
            broker.communicate()


def test_a_bridge_listens_nowhere(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """The broker that it is connected to, which asks for nothing in this test, takes the same stranger in."""
    realm = realm_with(tmp_path / "realm")
    with spawn("mqtt", "bridge", TOPIC, "--port", mosquitto.port, "--realm", realm.paths.root) as bridge:
        try:
            said(bridge, "connected")
            assert ports_of(bridge) == []
            assert answers(mosquitto.port)["mqtt"].startswith(_ACCEPTED)
        finally:
            bridge.terminate()
            bridge.communicate()
