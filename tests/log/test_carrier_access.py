"""Carriers that ask who one is: TLS and a password on NATS, SASL over TLS and access control lists on Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast import Realm
from sealcast.bench.carrier_servers import CarrierServer, KafkaServer, NatsServer
from sealcast.errors import Misuse, SealcastError, Unavailable
from sealcast.log.carriers import Carrier, CarrierAddress
from sealcast.log.kafka import KafkaCarrier
from sealcast.log.nats import NatsCarrier
from tests.log.test_carried_journal import files_of, is_whole
from tests.log.test_carried_topics import SCHEMA, TOPIC, deliver, opened, publish
from tests.mqtt.test_tls import Authority

PASSWORD = "a-password-of-the-broker"


class SecuredNats(NatsServer):
    """As it comes, but for TLS and a password: records of 1 MiB at most."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        super().__init__(directory)
        self._certificate, self._key = authority.issue("nats")

    def _command(self) -> list[str]:
        command = super()._command()
        configuration = self.directory / "server.conf"
        text = configuration.read_text().replace("max_payload: 32MB\n", "")
        tls = f'tls {{ cert_file: "{self._certificate}", key_file: "{self._key}" }}\n'
        configuration.write_text(f'{text}{tls}authorization {{ user: "sealcast", password: "{PASSWORD}" }}\n')
        return command


class SecuredKafka(KafkaServer):
    """SASL over TLS, and lists of who may do what."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        certificate, key = authority.issue("kafka")
        self._store = certificate.with_suffix(".store.pem")
        self._store.write_bytes(key.read_bytes() + certificate.read_bytes() + authority.file.read_bytes())
        super().__init__(directory)

    def _configuration(self, controller: int) -> str:
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        users = "".join(f' user_{name}="{PASSWORD}"' for name in ("broker", "admin", "stranger"))
        more = {
            "listeners": f"SASL_SSL://{self.host}:{self.port},CONTROLLER://{self.host}:{controller}",
            "advertised.listeners": f"SASL_SSL://{self.host}:{self.port}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._store,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._store.with_name("ca.pem"),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'{plain} username="admin" password="{PASSWORD}"{users};'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
        }
        lines = super()._configuration(controller).splitlines()
        kept = [line for line in lines if line.partition("=")[0] not in more]
        return "".join(f"{line}\n" for line in [*kept, *(f"{name}={value}" for name, value in more.items())])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "files")


@pytest.fixture
def nats_asks(tmp_path: Path, authority: Authority) -> Iterator[SecuredNats]:
    with SecuredNats(tmp_path / "nats", authority) as server:
        yield server.start()


@pytest.fixture
def kafka_asks(tmp_path: Path, authority: Authority) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path / "kafka", authority) as server:
        yield server.start()


def a_realm(directory: Path, server: CarrierServer, settings: dict[str, str]) -> Realm:
    realm = Realm.create(directory / "realm", f"r{directory.name[-12:]}")
    realm.create_topic(TOPIC, SCHEMA, access="members")
    realm.enrol_many(["nyse", "alice"])
    realm.subscribe(TOPIC, "alice", "price > 10")
    realm.add_carrier("away", server.address)
    path = realm.paths.carrier_settings("away")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    path.chmod(0o600)
    return realm


def passes(realm: Realm) -> None:
    publish(realm, 11, 12)
    deliver(realm)
    assert opened(realm) == [11, 12]
    assert files_of(realm) == []
    assert is_whole(realm)


def refused(carrier: Carrier) -> SealcastError:
    with pytest.raises((Unavailable, Misuse)) as said:
        carrier.partitions("anything")
    carrier.close()
    assert PASSWORD not in f"{said.value} {said.value.hint}"
    return said.value


def test_nats_over_tls_with_a_password(tmp_path: Path, authority: Authority, nats_asks: SecuredNats) -> None:
    settings = {"tls.ca": str(authority.file), "user": "sealcast", "password": PASSWORD}
    realm = a_realm(tmp_path, nats_asks, settings)
    realm.move_topic(TOPIC, "away")
    passes(realm)
    large = realm.journal(TOPIC).pieces.stage(0, 900, 901, bytes(3_000_000))
    assert len(realm.journal(TOPIC).pieces.read(large.name, large.digest)) == 3_000_000
    with pytest.raises(Misuse, match="takes no record of that size") as limit:
        realm.journal(TOPIC).pieces._places._partition.append([(b"", bytes(2 << 20))])  # type: ignore[attr-defined]
    assert "max_payload" in str(limit.value.hint)

    address = CarrierAddress.parse(nats_asks.address)
    stranger = Authority(tmp_path / "stranger")
    for wrong in ({"password": PASSWORD[::-1]}, {"tls.ca": str(stranger.file)}):
        refused(NatsCarrier(address, settings | wrong, patience_s=1))
    refused(NatsCarrier(address, {"user": "sealcast", "password": PASSWORD}, patience_s=1))


@pytest.mark.soak
def test_kafka_with_sasl_over_tls_and_access_lists(
    tmp_path: Path, authority: Authority, kafka_asks: SecuredKafka
) -> None:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    proof = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.file), "sasl.mechanism": "PLAIN"}
    settings = proof | {"sasl.username": "broker", "sasl.password": PASSWORD}
    realm = a_realm(tmp_path, kafka_asks, settings)
    name = f"{realm.name}.{TOPIC}"
    with pytest.raises(Misuse, match="does not let us do that"):
        realm.move_topic(TOPIC, "away")

    # The rights that docs/carriers.md lists for a broker, and the topics that somebody made for it.
    admin = KafkaCarrier(CarrierAddress.parse(kafka_asks.address), settings | {"sasl.username": "admin"})
    from sealcast.log.carriers import Placement

    frames = ("DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "DELETE")
    wanted = [(ResourceType.TOPIC, f"{name}{suffix}", frames) for suffix in _TOPICS]
    wanted += [(ResourceType.TRANSACTIONAL_ID, f"sealcast/{name}.{log}/0", ("WRITE", "DESCRIBE")) for log in _LOGS]
    for suffix in _TOPICS:
        admin.create(f"{name}{suffix}", Placement(1))
    bindings = [
        AclBinding(
            kind,
            resource,
            ResourcePatternType.LITERAL,
            "User:broker",
            "*",
            getattr(AclOperation, operation),
            AclPermissionType.ALLOW,
        )
        for kind, resource, operations in wanted
        for operation in operations
    ]
    for done in admin.admin().create_acls(bindings).values():
        done.result()
    realm.move_topic(TOPIC, "away")
    passes(realm)

    address = CarrierAddress.parse(kafka_asks.address)
    refused(KafkaCarrier(address, settings | {"sasl.password": PASSWORD[::-1]}, patience_s=5))
    stranger = KafkaCarrier(address, settings | {"sasl.username": "stranger"}, patience_s=5)
    with pytest.raises((Misuse, Unavailable)):
        stranger.partition(f"{name}.ledger", 0).append([(b"", b"forged")])


_TOPICS = ("", ".ledger", ".reseals", ".replays", ".pieces", ".places")
_LOGS = ("ledger", "reseals", "replays")
