"""`sealcast mqtt bridge` and `broker` as a user types them: what they print, refuse and count."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from sealcast import Event, Publisher
from sealcast.mqtt import Client
from tests.cli.shell import sealcast
from tests.clients.pump import pump
from tests.mqtt.mosquitto import Mosquitto
from tests.mqtt.servers import free_port, until
from tests.mqtt.test_bridge import Collected, connected, due, events, realm_with
from tests.protections.world import TOPIC

MAIN = "from sealcast.cli.main import main; main()"


def test_the_bridge_from_the_command_line(tmp_path: Path, mosquitto: Mosquitto) -> None:
    realm, published = realm_with(tmp_path / "realm"), events(40)
    common = ("mqtt", "bridge", TOPIC, "--port", mosquitto.port, "--name", "typed", "--realm", realm.paths.root)
    made = sealcast(*common, "--once")
    assert made.code == 0 and made.out.startswith("0 frames in"), made.err
    with connected(realm, "nyse", mosquitto.port, client_id="typed-nyse", through="bridge") as nyse:
        for event in published:
            nyse.publish(TOPIC, event.payload, qos=1, attributes=event.attributes)
        assert nyse.flush()
    done = sealcast(*common, "--once", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["frames"] == 40 and "connected to 127.0.0.1" in done.err
    pump(realm, TOPIC)
    ann = Client(realm, "ann", through="bridge", client_id="typed-ann")
    got = Collected(ann)
    ann.connect("127.0.0.1", mosquitto.port)
    ann.subscribe(TOPIC)
    ann.loop_start()
    until(ann.is_connected)
    for version in ("5", "3.1.1"):
        done = sealcast(*common, "--once", "--json", "--subscriber", "ann", "--protocol", version)
        assert done.code == 0, done.err
    until(lambda: len(got.payloads) == len(due("ann", published)))
    assert got.payloads == due("ann", published)
    ann.close()


def test_a_bridge_stops_in_good_order_and_shows_metrics(tmp_path: Path, mosquitto: Mosquitto) -> None:
    realm, port = realm_with(tmp_path / "realm"), free_port()
    arguments = ["mqtt", "bridge", TOPIC, "--port", mosquitto.port, "--realm", realm.paths.root, "--json"]
    command = [sys.executable, "-c", MAIN, *map(str, arguments), "--prometheus", str(port), "--name", "metrics"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "connected" not in process.stderr.readline():
            assert process.poll() is None
        with connected(realm, "nyse", mosquitto.port, client_id="metrics-nyse") as nyse:
            nyse.publish(TOPIC, b"x", qos=1, attributes={"price": 3}).wait_for_publish(10)

        def page() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as found:
                text: str = found.read().decode()
                return text

        until(lambda: "sealcast_mqtt_bridge_frames_total 1.0" in page())
        assert TOPIC not in page() and "nyse" not in page()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0 and json.loads(out)["frames"] == 1


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    realm = realm_with(tmp_path / "realm")
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": 3}, b"x")])
    at = ("--realm", realm.paths.root)
    for arguments, code, words in [
        (("bridge", "nothing", *at), 1, "no topic"),
        (("bridge", TOPIC, "--port", free_port(), *at), 1, "no MQTT broker answers"),
        (("bridge", TOPIC, "--protocol", "4", *at), 1, "3.1.1"),
        (("bridge", TOPIC, "--cert", tmp_path, *at), 1, "with its key"),
        (("bridge", *at), 2, "Missing argument"),
        (("broker", "--listen", "here", *at), 2, "HOST:PORT"),
        (("broker", "--listen", "0.0.0.0:1883", *at), 1, "without TLS"),
    ]:
        done = sealcast("mqtt", *arguments)
        assert done.code == code and words in done.err, (arguments, done.err)


@pytest.mark.parametrize("command", ["bridge", "broker"])
def test_help_shows_an_example(command: str) -> None:
    assert f"Example: sealcast mqtt {command}" in sealcast("mqtt", command, "--help").out
