"""sealcast token inspect: what a token says, whether a realm takes it, and which check it fails."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sealcast.cli import talk
from sealcast.trust.deployment import Realm
from sealcast.trust.keys.minting import token_for
from sealcast.trust.realm.changes import AddAuthority, CreateTopic, EnrolEntity, FoundRealm, Right
from sealcast.trust.realm.machine import EMPTY, RealmState, apply_all
from tests.cli.shell import sealcast
from tests.trust import token_world as world
from tests.trust.token_world import mint

AT = ("--at", "2026-01-01T00:00:00Z")


def founded() -> RealmState:
    """The realm of the token tables, by the registry's own rules."""
    center = world.PARSED["center"]
    enrolled = [EnrolEntity(c.name, c.verify_key, c.kem_public, tuple(c.roles), c.der) for c in (center, world.ALICE)]
    return apply_all(
        EMPTY,
        [
            FoundRealm(world.REALM, world.ROOT, (world.INTERMEDIATE,)),
            AddAuthority(world.LATE),
            *enrolled,
            CreateTopic("scores", world.TOPIC, world.SCHEMA, center="center"),
        ],
    )


@dataclass
class Stood:
    """A realm that stands around the working directory."""

    found: RealmState
    name: str = "market"
    id: bytes = world.REALM

    def state(self) -> RealmState:
        return self.found


@pytest.fixture
def realm(monkeypatch: pytest.MonkeyPatch) -> Stood:
    stood = Stood(founded())
    monkeypatch.setattr(talk, "open_realm", lambda **_: stood)
    return stood


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEALCAST_REALM", raising=False)


def kept(directory: Path, token: bytes) -> Path:
    path = directory / "alice.token"
    path.write_bytes(token)
    return path


def test_a_token_that_the_realm_takes(realm: Stood, tmp_path: Path) -> None:
    path = kept(tmp_path, mint(epoch=1))
    shown = sealcast("token", "inspect", path, *AT)
    assert shown.code == 0, shown.err
    for words in ("taken by this realm", "center", "alice", "Sports=NBA, Team=*", "publish", "scores"):
        assert words in shown.out
    document = sealcast("token", "inspect", path, *AT, "--json").document
    claims = world.claims()
    assert document["verifies"] is True
    assert document["topic_name"] == "scores"
    assert document["time"] == "valid"
    assert (document["issuer"], document["subject"], document["rights"]) == ("center", "alice", ["publish"])
    assert document["holder_key"] == claims.holder_key.hex()
    assert document["not_before"] == "2025-12-31T23:00:00.000Z"
    assert document["expires"] == "2026-01-01T01:00:00.000Z"


@pytest.mark.parametrize(
    ("token", "at", "reason", "check"),
    [
        (mint(), AT, "epoch-ahead", "epoch"),
        (mint(epoch=1), ("--at", "2026-02-01"), "center-expired", "center"),
        (mint(epoch=1), ("--at", "2026-01-02"), "expired", "token-time"),
        (mint("other-center", epoch=1), AT, "center-unknown", "center"),
        (mint(key="alice", epoch=1), AT, "signature", "token-signature"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_the_check_that_fails_is_named(
    realm: Stood, tmp_path: Path, token: bytes, at: tuple[str, str], reason: str, check: str
) -> None:
    told = sealcast("token", "inspect", kept(tmp_path, token), *at, "--json")
    assert told.code == 1
    assert (told.document["verifies"], told.document["reason"], told.document["check"]) == (False, reason, check)
    assert told.document["hint"]
    shown = sealcast("token", "inspect", kept(tmp_path, token), *at)
    assert shown.code == 1 and f"{reason}: " in shown.out


def test_of_another_realm_or_topic(realm: Stood, tmp_path: Path) -> None:
    foreign = sealcast("token", "inspect", kept(tmp_path, mint(realm=bytes(16), topic=bytes(16))), *AT, "--json")
    assert (foreign.code, foreign.document["reason"]) == (1, "realm")
    unknown = sealcast("token", "inspect", kept(tmp_path, mint(topic=bytes(16))), *AT, "--json")
    assert (unknown.code, unknown.document["reason"]) == (1, "audience")


@pytest.mark.usefixtures("nowhere")
def test_without_a_realm_the_claims_are_shown(tmp_path: Path) -> None:
    told = sealcast("token", "inspect", kept(tmp_path, mint()), "--json")
    assert told.code == 0
    assert told.document["verifies"] is None and told.document["subject"] == "alice"
    assert "not judged" in sealcast("token", "inspect", kept(tmp_path, mint())).out


@pytest.mark.usefixtures("nowhere")
def test_a_realm_that_was_named_must_be_there(tmp_path: Path) -> None:
    told = sealcast("token", "inspect", kept(tmp_path, mint()), "--realm", tmp_path / "none", "--json")
    assert (told.code, told.document["error"]) == (1, "not-found")


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "written",
    [
        lambda token: token,
        lambda token: token.hex().encode() + b"\n",
        lambda token: base64.b64encode(token),
        lambda token: base64.urlsafe_b64encode(token).rstrip(b"=") + b"\n",
    ],
    ids=["as it is", "hexadecimal", "base64", "base64 for addresses"],
)
def test_as_it_is_or_as_text_from_a_file_or_stdin(
    written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept(tmp_path, written(mint()))
    assert sealcast("token", "inspect", path, "--json").document["bytes"] == len(mint())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    assert sealcast("token", "inspect", "-", "--json").document["subject"] == "alice"


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "absent"), (b"not even a token", "encoding"), (mint()[:-1], "encoding"), (b"\xd2" * 20_000, "size")],
    ids=["nothing", "text", "cut", "long"],
)
def test_what_is_no_token(tmp_path: Path, data: bytes, reason: str) -> None:
    told = sealcast("token", "inspect", kept(tmp_path, data), "--json")
    assert told.code == 1
    assert (told.document["error"], told.document["reason"]) == ("token", reason)
    assert "refused: the token is refused" in told.err


def test_usage_and_help(tmp_path: Path) -> None:
    assert sealcast("token", "inspect").code == 2
    assert "Example: sealcast token inspect" in sealcast("token", "inspect", "--help").out
    missing = sealcast("token", "inspect", tmp_path / "none")
    assert missing.code == 1 and "No such file" in missing.err
    bad = sealcast("token", "inspect", kept(tmp_path, mint()), "--at", "soon")
    assert bad.code == 1 and "--at is a time" in bad.err


# --- in a real realm ------------------------------------------------------------------------------


def test_a_token_of_a_realms_own_center(home: Path, tmp_path: Path) -> None:
    """Minted by the center that came with the realm; taken, until its owner is revoked."""
    realm = Realm(home)
    token = token_for(realm.center(), realm.state(), "quotes", "alice", Right.SUBSCRIBE, realm.clock())
    path = kept(tmp_path, token)
    told = sealcast("token", "inspect", path, "--json")
    assert told.code == 0, told.out
    assert (told.document["verifies"], told.document["topic_name"]) == (True, "quotes")
    assert told.document["issuer"] == realm.state().topic("quotes").center
    assert sealcast("token", "inspect", path, "--at", "2020-01-01", "--json").document["reason"].startswith("center-")
    assert sealcast("entity", "revoke", "alice").code == 0
    again = sealcast("token", "inspect", path, "--json")
    assert (again.code, again.document["reason"], again.document["check"]) == (1, "revoked", "revoked")
