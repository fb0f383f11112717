"""The metrics of services and peers: what became of requests and events, and never who asked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from prometheus_client import generate_latest

from sealcast import Realm
from sealcast.cli import peer, serve
from sealcast.control.running import Running
from sealcast.protections.attribute.peering.host import PeerHost
from tests.cli.shell import sealcast


def test_services_show_what_became_of_requests(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    with Running(realm) as running:
        running.start()
        first = running.services[0]
        first.counts.update({"answered": 3, "refused": 1})
        what, page = str(first.what), generate_latest(serve.metrics_of(running, None)).decode()
    labels = f'name="{first.name}",outcome="answered",service="{what}"'
    assert f"sealcast_service_requests_total{{{labels}}} 3.0" in page


def test_peers_show_what_became_of_events(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    host = PeerHost(realm)
    member = SimpleNamespace(topic="quotes", name="ann", journal=SimpleNamespace(counts=Counter(received=4, other=9)))
    host.members = lambda: [member, member]  # type: ignore[method-assign,list-item,return-value]
    page = generate_latest(peer.metrics_of(host)).decode()
    assert 'sealcast_peer_events_total{outcome="received",topic="quotes"} 8.0' in page
    assert 'sealcast_peer_events_total{outcome="missed",topic="quotes"} 0.0' in page
    assert "ann" not in page and "other" not in page


def test_a_page_needs_a_token_that_is_one(tmp_path: Path) -> None:
    realm, token = tmp_path / "realm", tmp_path / "token"
    Realm.create(realm)
    token.write_text("short\n")
    token.chmod(0o600)
    for command in (("serve", "--once"), ("peer", "run", "--once"), ("run", "--once")):
        refused = sealcast(*command, "--prometheus", 0, "--prometheus-token", token, "--realm", realm)
        assert refused.code == 1 and "has no token" in refused.err, refused.err
    shown = sealcast("serve", "--once", "--prometheus", 0, "--realm", realm)
    assert shown.code == 0 and "metrics on http://127.0.0.1:" in shown.err, shown.err
