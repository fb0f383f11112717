"""Commands around keys at rest and the registry's database: handing keys over, looking, bringing up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealcast.primitives import passphrase
from sealcast.trust.deployment import Realm
from sealcast.trust.storage import schema
from sealcast.trust.vault import keyfile, unlock
from tests.cli.shell import sealcast


@pytest.fixture
def phrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(passphrase, "COST", passphrase.LEAST_COST)
    path = tmp_path / "phrase"
    path.touch(0o600)
    path.write_text("six words that nobody else knows\n")
    return path


def test_a_key_is_handed_over_under_a_passphrase(
    home: Path, phrase: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, taken = tmp_path / "given.key", home / "entities" / "alice.key"
    assert sealcast("relock", taken, "--by", "passphrase", "--to", given).code == 1, "there is none yet"
    monkeypatch.setenv(unlock.PASSPHRASE_FILE_VARIABLE, str(phrase))
    before = taken.read_bytes()
    result = sealcast("relock", taken, "--by", "passphrase", "--to", given)
    assert result.code == 0 and "is locked by a passphrase" in result.out
    assert taken.read_bytes() == before and given.stat().st_mode & 0o777 == 0o600
    assert sealcast("relock", taken, "--by", "passphrase", "--to", given).code == 1, "keys are never overwritten"
    assert "sealed under  a passphrase" in sealcast("inspect", given).out
    # At the other end: another user, another unlock key.
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(tmp_path / "hers" / "unlock.key"))
    document = sealcast("relock", given, "--by", "key", "--json").document
    assert document["files"][0]["lock"]["id"] == keyfile.look(given).lock.id.hex()
    monkeypatch.delenv(unlock.PASSPHRASE_FILE_VARIABLE)
    taken.unlink()
    given.rename(taken)
    assert Realm(home).identity("alice").name == "alice"


def test_relock_takes_one_file_for_one_target(home: Path, tmp_path: Path) -> None:
    keys = [home / "entities" / "alice.key", home / "secrets" / "broker.key"]
    refused = sealcast("relock", *keys, "--by", "key", "--to", tmp_path / "x")
    assert refused.code == 1 and "one at a time" in refused.err
    assert sealcast("relock", *keys, "--by", "nothing").code == 2
    assert sealcast("relock", *keys, "--by", "key").code == 0
    assert sealcast("relock", home / "realm.json", "--by", "key").code == 1


def test_a_realm_away_from_its_unlock_key_says_what_is_missing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(tmp_path / "elsewhere.key"))
    for command in (("entity", "enrol", "carol"), ("sub", "quotes", "--as", "alice")):
        result = sealcast(*command)
        assert result.code == 1 and "is locked by unlock key" in result.err and unlock.KEY_VARIABLE in result.err
    assert sealcast("entity", "list").code == 0, "what is public needs no key"
    checks = {c["check"]: c for c in sealcast("doctor", "--no-spark", "--json").document["checks"]}
    assert checks["unlock key"]["level"] == "fail" and unlock.KEY_VARIABLE in checks["unlock key"]["advice"]
    unlock.for_writing()
    checks = {c["check"]: c for c in sealcast("doctor", "--no-spark", "--json").document["checks"]}
    assert checks["unlock key"]["level"] == "fail" and "is locked by unlock key" in checks["unlock key"]["found"]


def test_doctor_warns_of_an_unlock_key_inside_the_realm(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = home / "unlock.key"
    inside.write_bytes(unlock.key_path().read_bytes())
    inside.chmod(0o600)
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(inside))
    checks = {c["check"]: c for c in sealcast("doctor", "--no-spark", "--json").document["checks"]}
    assert checks["unlock key"]["level"] == "warn" and "lies in the realm" in checks["unlock key"]["found"]


def test_the_registry_is_shown_and_up_to_date(home: Path) -> None:
    shown = sealcast("registry", "show", "--json").document
    assert shown["registry"] == str(home / "registry.sqlite") and shown["schema"] == schema.NEWEST
    assert "whole     yes" in sealcast("registry", "show").out
    assert "already" in sealcast("registry", "migrate").out
    checks = {c["check"]: c for c in sealcast("doctor", "--no-spark", "--json").document["checks"]}
    assert checks["registry"]["level"] == "ok" and "SQLite" in checks["registry"]["found"]


def test_doctor_names_a_registry_that_is_not_whole(home: Path) -> None:
    path = home / "registry.sqlite"
    path.write_bytes(b"\0" * 16 + path.read_bytes()[16:])
    checks = {c["check"]: c for c in sealcast("doctor", "--no-spark", "--json").document["checks"]}
    assert checks["registry"]["level"] == "fail" and "damaged" in checks["registry"]["found"]
