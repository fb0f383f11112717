"""Over TLS: the bridge with mosquitto and a client certificate, the broker of ours, and nobody in between."""

from __future__ import annotations

import datetime
import ipaddress
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sealcast import Event
from sealcast.errors import Unavailable
from sealcast.mqtt import Client
from sealcast.mqtt.bridge import Bridge
from sealcast.mqtt.link import MqttLink
from tests.mqtt.mosquitto import Mosquitto
from tests.mqtt.servers import until
from tests.mqtt.test_bridge import in_log, realm_with
from tests.mqtt.test_broker import ReceivedEvent, serving
from tests.mqtt.test_broker import realm_with as searchable_realm
from tests.protections.world import TOPIC


class Authority:
    """An authority for servers and clients, with its files in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name("authority")
        self.file = directory / "ca.pem"
        made = self._certificate(self._name, self._key, ca=True)
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, private = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        made = self._certificate(_name(name), key, ca=False)
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def _certificate(self, name: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


def listener(authority: Authority, *, clients: bool) -> str:
    certificate, key = authority.issue("server")
    lines = [f"cafile {authority.file}", f"certfile {certificate}", f"keyfile {key}"]
    return "\n".join([*lines, *(["require_certificate true"] if clients else [])])


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_the_bridge_speaks_tls(tmp_path: Path, authority: Authority, version: str) -> None:
    realm = realm_with(tmp_path / "realm")
    certificate, key = authority.issue("bridge")
    with Mosquitto(tmp_path / "server", listener=listener(authority, clients=True)).start() as server:
        link = MqttLink("127.0.0.1", server.port, "tls", version, None, None, authority.file, certificate, key)
        with Bridge(realm, link, [TOPIC]) as bridge:
            bridge.run(threading.Event(), once=True)
        nyse = Client(realm, "nyse", through="bridge")
        nyse.tls_set(str(authority.file), str(certificate), str(key))
        nyse.connect("127.0.0.1", server.port)
        nyse.loop_start()
        for n in range(10):
            nyse.publish(TOPIC, b"%d" % n, qos=1, attributes={"price": n})
        assert nyse.flush()
        nyse.close()
        with Bridge(realm, link, [TOPIC]) as bridge:
            assert bridge.run(threading.Event(), once=True)["frames"] == 10 == in_log(realm)


def test_a_server_that_is_not_the_one_meant_gets_nothing(tmp_path: Path, authority: Authority) -> None:
    realm, other = realm_with(tmp_path / "realm"), Authority(tmp_path / "other")
    with Mosquitto(tmp_path / "server", listener=listener(other, clients=False)).start() as server:
        link = MqttLink("127.0.0.1", server.port, "tls", authority=authority.file)
        with pytest.raises(Unavailable, match="certificate"), Bridge(realm, link, [TOPIC]) as bridge:
            bridge.run(threading.Event(), once=True)
    with pytest.raises(Unavailable, match="TLS files"):
        Bridge(realm, MqttLink("127.0.0.1", 1, "tls", authority=tmp_path / "nothing.pem"), [TOPIC])


def test_the_broker_speaks_tls(tmp_path: Path, authority: Authority) -> None:
    realm = searchable_realm(tmp_path / "realm", ["s0"])
    certificate, key = authority.issue("server")
    with serving(realm, "--cert", str(certificate), "--key", str(key)) as served:
        got: list[bytes] = []

        def take(client: Client, userdata: object, message: ReceivedEvent) -> None:
            got.append(message.payload)

        reader, nyse = Client(realm, "s0"), Client(realm, "nyse")
        reader.on_message = take  # type: ignore[assignment]
        for client in (reader, nyse):
            client.tls_set(str(authority.file))
            client.connect("127.0.0.1", served.port)
        reader.subscribe(TOPIC, "price < 100")
        for client in (reader, nyse):
            client.loop_start()
        until(lambda: reader.is_connected() and nyse.is_connected())
        time.sleep(0.5)
        for price in (3, 200, 5):
            nyse.publish(TOPIC, b"%d" % price, qos=1, attributes=Event({"price": price}, b"").attributes)
        until(lambda: got == [b"3", b"5"])
        for client in (reader, nyse):
            client.close()
