"""What mosquitto itself loses when it is killed: measured, so that the documents can say so."""

from __future__ import annotations

from pathlib import Path

from tests.mqtt.mosquitto import Mosquitto
from tests.mqtt.test_bridge import bridging, connected, events, in_log, realm_with, until
from tests.protections.world import TOPIC


def lost(tmp_path: Path, how: str) -> int:
    """Of 50 frames that mosquitto acknowledged for a bridge that was away, how many never reach the log."""
    realm = realm_with(tmp_path / "realm")
    with Mosquitto(tmp_path / "mosquitto").start() as server:
        with bridging(realm, server.port, "3.1.1", client_id="away"):
            pass
        with connected(realm, "nyse", server.port, "3.1.1", through="bridge") as nyse:
            for event in events(50):
                nyse.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
            assert nyse.flush()  # acknowledged, all of them
        if how == "killed":
            server.kill()
            server.start()
        else:
            server.restart()
        with bridging(realm, server.port, "3.1.1", client_id="away") as bridge:
            if how != "killed":
                until(lambda: bridge.counts["frames"] == 50)
    return 50 - in_log(realm)


def test_stopped_in_good_order_it_loses_nothing(tmp_path: Path) -> None:
    assert lost(tmp_path, "stopped") == 0


def test_killed_it_loses_what_it_had_not_saved(tmp_path: Path) -> None:
    """This is what the documents warn of. Should a later mosquitto do better, they can say so."""
    assert lost(tmp_path, "killed") == 50
