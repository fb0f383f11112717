"""No port of `serve` or `peer run` answers another user of the machine; nor does the page of metrics, with a token."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from sealcast.broker import metrics_page
from sealcast.errors import Misuse
from sealcast.model import Schema
from sealcast.model.protection import protection_of
from sealcast.trust.deployment import Realm
from tests.cli.shell import sealcast, spawn
from tests.cli.strangers import answers, ports_of, said

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 255}]})
TOKEN = b"0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    realm = Realm.create(tmp_path_factory.mktemp("strangers") / "realm")
    realm.enrol_many(["nyse", "ann"])
    realm.create_topic("quotes", SCHEMA, protection=protection_of("attribute"), access="members")
    done = sealcast(
        "subscription", "add", "quotes", "--as", "ann", "--filter", "price > 3", "--realm", realm.paths.root
    )
    assert done.code == 0, done.err
    return realm.paths.root


def test_serve_listens_nowhere(made: Path) -> None:
    with spawn("serve", "--realm", made) as server:
        try:
            said(server, "serving")
            assert ports_of(server) == []
        finally:
            server.terminate()
            server.communicate()


def test_a_peer_answers_nobody_without_a_certificate(made: Path) -> None:
    with spawn("peer", "run", "--as", "ann", "--listen", "127.0.0.1:0", "--realm", made) as peer:
        try:
            said(peer, "peers are running")
            ports = ports_of(peer, 1)
            assert len(ports) == 1
            for how, answer in answers(*ports).items():
                assert answer == b"" or answer.startswith(b"\x15\x03"), f"{how}: a TLS alert, or nothing"
        finally:
            peer.terminate()
            peer.communicate()


def page(port: int, shown: str | None) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics")
    if shown is not None:
        request.add_header("Authorization", shown)
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return int(found.status) if b"things_total 3.0" in found.read() else 0
    except urllib.error.HTTPError as error:
        assert error.read() == b""
        return error.code


@pytest.mark.parametrize("guarded", [True, False])
def test_the_page_of_metrics_is_for_those_who_have_the_token(tmp_path: Path, guarded: bool) -> None:
    file, registry = tmp_path / "token", CollectorRegistry()
    file.write_bytes(TOKEN + b"\n")
    file.chmod(0o600)
    Counter("things", "Things.", registry=registry).inc(3)
    with metrics_page.serve(registry, 0, metrics_page.read_token(file) if guarded else None) as served:
        answer = answers(served.port)["http"]
        assert (b" 401 " in answer and b"things" not in answer) if guarded else b" 200 OK" in answer
        right = f"Bearer {TOKEN.decode()}"
        assert page(served.port, right) == 200
        wrong = [None, "", right[:-1], right + "0", right.removeprefix("Bearer "), right.replace("Bearer", "Basic")]
        assert {page(served.port, shown) for shown in wrong} == {401 if guarded else 200}


def test_a_token_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for content, mode, words in [
        (TOKEN, 0o644, "may be read by others"),
        (b"short", 0o600, "has no token"),
        (b"two words of enough length", 0o600, "has no token"),
        (b"x" * 2_000, 0o600, "has no token"),
    ]:
        file.write_bytes(content)
        file.chmod(mode)
        with pytest.raises(Misuse, match=words):
            metrics_page.read_token(file)
