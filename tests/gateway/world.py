"""A realm with a gateway that answers, and entities whose keys are in PEM for any client."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from sealcast.gateway.hub import Hub
from sealcast.gateway.limits import DEFAULT_LIMITS, GatewayLimits
from sealcast.gateway.running import GatewayService
from sealcast.model.schema import Schema
from sealcast.primitives import x509
from sealcast.primitives.secrets import Secret
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import GatewayRealm
from tests.gateway.stock_client import StockClient

SCHEMA = Schema.from_json({"attributes": [{"name": "price", "type": "int", "min": 0, "max": 1000}]})
TOPIC = "quotes"
AT = f"/v1/topics/{TOPIC}/brokers/broker"


def make_realm(root: Path) -> Realm:
    """With a topic, a publisher, two subscribers and a gateway on loopback."""
    realm = Realm.create(root, "market")
    realm.create_topic(TOPIC, SCHEMA)
    realm.enrol_many(["nyse", "alice", "bob", "mallory"])
    realm.grant(TOPIC, "nyse")
    for name in ("alice", "bob"):
        realm.grant(TOPIC, name)
        realm.subscribe(TOPIC, name, "price > 100")
    realm.add_gateway("door", ["localhost", "127.0.0.1"])
    return realm


def identity_pem(realm: Realm, name: str, directory: Path) -> Path:
    """An entity's certificate, its issuer and its key, as any TLS library reads them. The key is bare: for tests."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    state = realm.state()
    secrets = realm.broker(name).identity if name in state.brokers() else realm.identity(name)
    certificate = state.entity(name).certificate
    issuers = [each.der for each in realm.trust(state).intermediates if x509.signed_by(certificate, each.der)]
    key = secrets.key.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = directory / f"{name}-{len(list(directory.iterdir()))}.pem"
    path.write_bytes(x509.pem(certificate) + b"".join(map(x509.pem, issuers)) + key)
    return path


class RunningGateway:
    """A gateway in a thread of its own, and clients of it."""

    def __init__(
        self,
        realm: Realm,
        directory: Path,
        limits: GatewayLimits = DEFAULT_LIMITS,
        console: Collection[str] | None = None,
    ) -> None:
        self.realm, self._directory = realm, directory
        self.log = io.StringIO()
        self.gateway = GatewayService(
            GatewayRealm(realm.paths.root), limits=limits, log=self.log, log_requests=True, console=console
        )
        self.port = self.gateway.port
        self.root = directory / "root.pem"
        founding = realm.state().founding
        assert founding is not None
        self.root.write_bytes(x509.pem(founding.root))
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.gateway.started.wait(60), self.failure
        self._clients: list[StockClient] = []

    def _run(self) -> None:
        try:
            asyncio.run(self.gateway.run())
        except BaseException as error:
            self.failure = error
            raise

    @property
    def hub(self) -> Hub:
        assert self.gateway.hub is not None
        return self.gateway.hub

    def client(self, name: str | None = None, **settings: object) -> StockClient:
        """As an entity, or as nobody."""
        identity = identity_pem(self.realm, name, self._directory) if name is not None else None
        made = StockClient("localhost", self.port, self.root, identity, **settings)  # type: ignore[arg-type]
        self._clients.append(made)
        return made

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        self.gateway.stop()
        self.thread.join(60)
        assert not self.thread.is_alive(), "the gateway does not stop"


@contextmanager
def running(realm: Realm, directory: Path, limits: GatewayLimits = DEFAULT_LIMITS) -> Iterator[RunningGateway]:
    made = RunningGateway(realm, directory, limits)
    try:
        yield made
    finally:
        made.stop()


__all__ = ["AT", "SCHEMA", "TOPIC", "RunningGateway", "Secret", "identity_pem", "make_realm", "running"]
