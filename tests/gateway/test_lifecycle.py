"""A gateway as its operator sees it: started, asked whether it is ready, drained, its certificate renewed."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sealcast.errors import CertificateRejected, Misuse
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from tests.gateway.stock_client import StockClient
from tests.gateway.world import AT, identity_pem, make_realm, running


def shown(port: int, root: Path) -> certificates.Certificate:
    """The certificate that is shown now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(root)
    raw = socket.create_connection(("127.0.0.1", port), timeout=60)
    with context.wrap_socket(raw, server_hostname="localhost") as secured:
        assert secured.version() == "TLSv1.3"
        found = secured.getpeercert(binary_form=True)
    assert found is not None
    return certificates.parse(found)


def test_only_tls_1_3_is_spoken(tmp_path: Path) -> None:
    with running(make_realm(tmp_path / "market"), tmp_path) as made:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(made.root)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(("127.0.0.1", made.port), timeout=60) as raw, pytest.raises(OSError):
            context.wrap_socket(raw, server_hostname="localhost")


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    realm = make_realm(tmp_path / "market")
    with running(realm, tmp_path) as made:
        before = shown(made.port, made.root)
        assert before.hosts == ("localhost", "127.0.0.1") and before.roles == {Role.GATEWAY}
        realm.add_gateway("door", ["localhost", "gateway.example.org"])
        found = shown(made.port, made.root)
        while found.serial == before.serial:  # the test's own limit bounds this
            found = shown(made.port, made.root)
        assert found.hosts == ("localhost", "gateway.example.org") and found.keys == before.keys
        realm.renew("door")
        assert certificates.parse(realm.state().entity("door").certificate).hosts == found.hosts


def test_a_gateway_that_was_revoked_is_not_ready(tmp_path: Path) -> None:
    realm = make_realm(tmp_path / "market")
    with running(realm, tmp_path) as made:
        asking = made.client()
        assert asking.get("/readyz").value["status"] == "ready"
        version = realm.revoke_entity("door")
        made.client("alice").get("/v1/registry/changes", after=version - 1, wait=60)
        found = asking.get("/readyz")
        assert found.status == 503 and found.value["trouble"] == "certificate"
        assert asking.get("/healthz").status == 200


def test_hosts_are_named_once_and_for_gateways_only(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "market")
    with pytest.raises(Misuse):
        realm.add_gateway("door", [])
    with pytest.raises(CertificateRejected):
        realm.add_gateway("door", ["no host"])
    realm.enrol("alice")
    with pytest.raises(Misuse, match="no gateway"):
        realm.add_gateway("alice", ["localhost"])
    found = certificates.parse(realm.add_gateway("door", ["LOCALHOST.", "localhost", "::1"]).certificate)
    assert found.hosts == ("localhost", "::1")


def test_the_command_drains_when_it_is_asked_to_stop(tmp_path: Path) -> None:
    realm = make_realm(tmp_path / "market")
    command = [sys.executable, "-c", "from sealcast.cli.main import main; main()", "gateway", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--realm", str(realm.paths.root), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while '"event": "started"' not in (line := process.stderr.readline()):
        assert process.poll() is None, line
    port = int(json.loads(line)["listen"].rpartition(":")[2])
    from sealcast.primitives import x509

    founding = realm.state().founding
    assert founding is not None
    (tmp_path / "root.pem").write_bytes(x509.pem(founding.root))
    alice = StockClient("localhost", port, tmp_path / "root.pem", identity_pem(realm, "alice", tmp_path))
    assert alice.get("/readyz").status == 200
    answers: list[int] = []
    waiting = threading.Thread(target=lambda: answers.append(alice.get(f"{AT}/mail/ledger", wait=60).status))
    waiting.start()
    nyse = StockClient("localhost", port, tmp_path / "root.pem", identity_pem(realm, "nyse", tmp_path))
    assert nyse.get("/v1/registry/changes", after=0).status == 200
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    waiting.join(60)
    assert process.returncode == 0, err
    assert answers == [200], "what waits is answered before the end"
    document = json.loads(out)
    assert document["gateway"] == "door" and document["requests"] >= 2
