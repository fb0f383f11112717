"""Private keys at rest: a copy of the realm is a copy of no key, and whoever lacks what unlocks it is told so."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.errors import CannotOpen, Corrupt, Misuse, NotFound, Rejected, SealcastError, Unavailable
from sealcast.model import Schema
from sealcast.primitives import passphrase
from sealcast.primitives.secrets import Secret
from sealcast.trust.deployment import Realm
from sealcast.trust.vault import keyfile, unlock

KIND = "sealcast entity"
BODY = {"entity": "alice", "ed25519_seed": "5e" * 32}
MISSING = NotFound("missing")
PHRASE = "four words are not enough"


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses that cost little, for tests that make many."""
    monkeypatch.setattr(passphrase, "COST", passphrase.LEAST_COST)


@pytest.fixture
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine" / "unlock.key"
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(path))
    return path


def written(directory: Path) -> Path:
    path = directory / "alice.key"
    keyfile.write(path, KIND, BODY)
    return path


# --- nothing of a realm is a key ------------------------------------------------------------------


def test_no_byte_of_a_realm_directory_is_a_secret(tmp_path: Path) -> None:
    realm = Realm.create(tmp_path / "realm")
    realm.create_topic("quotes", Schema.from_json({"attributes": [{"name": "price", "type": "int"}]}), access="members")
    realm.enrol_many(["alice", "bob"])
    realm.subscribe("quotes", "bob", "price > 1")
    needles = dict(spelt(realm.paths.root))
    assert len(needles) > 40
    for path in (p for p in realm.paths.root.rglob("*") if p.is_file()):
        content = path.read_bytes()
        assert [what for needle, what in needles.items() if needle in content] == [], path


def spelt(root: Path) -> Iterator[tuple[bytes, str]]:
    """Everything that is sealed in the realm's key files, and what unlocks them: raw, hex, base64 at any shift."""
    secrets = {"unlock key": unlock.for_writing().key.reveal()}
    for path in root.rglob("*.key"):
        body = keyfile.read(path, keyfile.look(path).kind, MISSING)
        texts = {f"{path.name}: {n}": v for n, v in body.items() if isinstance(v, str) and len(v) >= 64}
        assert texts, path
        secrets |= {what: bytes.fromhex(text) for what, text in texts.items()}
    for what, raw in secrets.items():
        yield raw, what
        yield raw.hex().encode(), what
        yield raw.hex().upper().encode(), what
        for shift in range(3):
            first, end = -(-8 * shift // 6), 8 * (shift + len(raw)) // 6
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield encode(bytes(shift) + raw)[first:end], what


# --- the unlock key -------------------------------------------------------------------------------


def test_it_is_made_once_private_and_outside(own_key: Path, tmp_path: Path) -> None:
    threads = [threading.Thread(target=unlock.for_writing) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stat.S_IMODE(own_key.stat().st_mode) == 0o600 and stat.S_IMODE(own_key.parent.stat().st_mode) == 0o700
    assert os.listdir(own_key.parent) == ["unlock.key"]
    before = own_key.read_bytes()
    assert keyfile.read(written(tmp_path), KIND, MISSING) == BODY
    assert own_key.read_bytes() == before


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SEALCAST_UNLOCK_KEY": "/a/b"}, "/a/b"),
        ({"XDG_CONFIG_HOME": "/x"}, "/x/sealcast/unlock.key"),
        ({"XDG_CONFIG_HOME": "relative"}, str(Path.home() / ".config/sealcast/unlock.key")),
        ({}, str(Path.home() / ".config/sealcast/unlock.key")),
    ],
)
def test_where_it_is(environment: dict[str, str], expected: str) -> None:
    assert str(unlock.key_path(environment)) == expected


def test_it_is_not_made_inside_a_realm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Realm.create(tmp_path / "realm").paths.root
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(root / "config" / "unlock.key"))
    with pytest.raises(Misuse, match="would lie in the realm") as refusal:
        written(tmp_path)
    assert refusal.value.hint is not None and unlock.KEY_VARIABLE in refusal.value.hint
    assert not (root / "config").exists()


def test_without_it_nothing_opens_and_the_message_says_where_to_look(own_key: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    own_key.rename(tmp_path / "away")
    with pytest.raises(Unavailable, match=f"{own_key} does not exist") as refusal:
        keyfile.read(path, KIND, MISSING)
    assert refusal.value.hint is not None and unlock.KEY_VARIABLE in refusal.value.hint
    assert not own_key.exists(), "reading makes no key"
    unlock.for_writing()
    with pytest.raises(CannotOpen, match="is locked by unlock key"):
        keyfile.read(path, KIND, MISSING)
    (tmp_path / "away").replace(own_key)
    assert keyfile.read(path, KIND, MISSING) == BODY


def test_a_damaged_or_open_unlock_key_is_refused(own_key: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    good = own_key.read_bytes()
    for bad in (b"", b"{}", b"[1]", good[:-20], good.replace(b'"key": "', b'"key": "0'), b"\xff" * 5000):
        own_key.write_bytes(bad)
        with pytest.raises(Corrupt, match="no unlock key"):
            keyfile.read(path, KIND, MISSING)
    at = good.index(b'"key"') + 9
    own_key.write_bytes(good[:at] + (b"0" if good[at : at + 1] != b"0" else b"1") + good[at + 1 :])
    with pytest.raises(Corrupt, match="not as it was written"):
        keyfile.read(path, KIND, MISSING)
    own_key.write_bytes(good)
    own_key.chmod(0o640)
    with pytest.raises(Rejected, match="mode 0640"):
        keyfile.read(path, KIND, MISSING)


# --- a passphrase ---------------------------------------------------------------------------------


def test_a_passphrase_unlocks_from_a_file_or_the_environment(
    cheap: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_key: Path
) -> None:
    monkeypatch.setenv(unlock.PASSPHRASE_VARIABLE, PHRASE)
    path = written(tmp_path)
    assert not own_key.exists(), "there is no need for one"
    monkeypatch.delenv(unlock.PASSPHRASE_VARIABLE)
    with pytest.raises(Unavailable, match="locked by a passphrase, and none was given"):
        keyfile.read(path, KIND, MISSING)
    file = tmp_path / "phrase"
    file.write_text(PHRASE + "\n")
    monkeypatch.setenv(unlock.PASSPHRASE_FILE_VARIABLE, str(file))
    with pytest.raises(Rejected, match="can be read by others"):
        keyfile.read(path, KIND, MISSING)
    file.chmod(0o600)
    assert keyfile.read(path, KIND, MISSING) == BODY
    monkeypatch.setenv(unlock.PASSPHRASE_VARIABLE, PHRASE)
    with pytest.raises(Misuse, match="both set"):
        keyfile.read(path, KIND, MISSING)


@pytest.mark.parametrize("wrong", ["four words are not enough.", "Four words are not enough", "x" * 40])
def test_a_wrong_passphrase_is_named_and_not_repeated(
    cheap: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv(unlock.PASSPHRASE_VARIABLE, PHRASE)
    path = written(tmp_path)
    monkeypatch.setenv(unlock.PASSPHRASE_VARIABLE, wrong)
    with pytest.raises(CannotOpen, match="locked by another passphrase") as refusal:
        keyfile.read(path, KIND, MISSING)
    told = str(refusal.value) + str(refusal.value.__notes__) + path.read_text()
    assert PHRASE not in told and wrong not in told


def test_a_short_passphrase_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(unlock.PASSPHRASE_VARIABLE, "elevenchars")
    with pytest.raises(Misuse, match="at least 12 characters"):
        written(tmp_path)
    empty = tmp_path / "empty"
    empty.touch(0o600)
    monkeypatch.delenv(unlock.PASSPHRASE_VARIABLE)
    monkeypatch.setenv(unlock.PASSPHRASE_FILE_VARIABLE, str(empty))
    with pytest.raises(Misuse, match="at least 12 characters"):
        written(tmp_path)
    monkeypatch.setenv(unlock.PASSPHRASE_FILE_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable, match="nowhere does not exist"):
        written(tmp_path)


def test_many_files_cost_one_stretch(cheap: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(unlock.PASSPHRASE_VARIABLE, "a passphrase of this test alone")
    stretched: list[bytes] = []
    real = passphrase.stretch

    def counted(phrase: Secret, salt: bytes, cost: int) -> Secret:
        stretched.append(salt)
        return real(phrase, salt, cost)

    monkeypatch.setattr(passphrase, "stretch", counted)
    paths = [tmp_path / f"{n}.key" for n in range(20)]
    for path in paths:
        keyfile.write(path, KIND, BODY)
    for path in paths:
        assert keyfile.read(path, KIND, MISSING) == BODY
    assert len(stretched) == 1
    assert len({keyfile.look(path).sealed for path in paths}) == len(paths), "and no two files are alike"


def test_scrypt_is_what_others_compute() -> None:
    """RFC 7914, section 12, third vector, and OpenSSL at the cost that is written."""
    vector = hashlib.scrypt(b"pleaseletmein", salt=b"SodiumChloride", n=16384, r=8, p=1, dklen=64).hex()
    assert vector.startswith("7023bdcb3afd7348461c06cd81fd38eb")
    salt = bytes(range(16))
    ours = passphrase.stretch(passphrase.from_text(PHRASE), salt).reveal().hex()
    options = [f"hexpass:{PHRASE.encode().hex()}", f"hexsalt:{salt.hex()}", f"n:{1 << passphrase.COST}", "r:8", "p:1"]
    arguments = [part for option in [*options, f"maxmem_bytes:{1 << 28}"] for part in ("-kdfopt", option)]
    told = subprocess.run(
        ["openssl", "kdf", "-keylen", "32", *arguments, "SCRYPT"], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip().replace(":", "").lower() == ours


def test_composed_and_decomposed_letters_are_one_passphrase() -> None:
    assert passphrase.from_text("Schl\u00fcsselbund") == passphrase.from_text("Schlu\u0308sselbund")


# --- tampering ------------------------------------------------------------------------------------


def _changed(body: dict[str, object], **fields: object) -> dict[str, object]:
    changed = {**body, **fields}
    changed.pop("check")
    return {**changed, "check": hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:16]}


def _flipped(text: object) -> str:
    assert isinstance(text, str)
    return ("0" if text[0] != "0" else "1") + text[1:]


def test_no_field_can_be_changed_even_with_its_check_made_again(own_key: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    body = json.loads(path.read_text())
    lock = body["lock"]
    attempts: dict[str, dict[str, object]] = {
        "seed": {"seed": _flipped(body["seed"])},
        "short seed": {"seed": body["seed"][2:]},
        "commitment": {"commitment": _flipped(body["commitment"])},
        "sealed": {"sealed": _flipped(body["sealed"])},
        "cut": {"sealed": body["sealed"][:-2]},
        "nothing sealed": {"sealed": ""},
        "not hex": {"sealed": "zz"},
        "another lock": {"lock": {**lock, "id": _flipped(lock["id"])}},
        "unknown lock": {"lock": {**lock, "by": "nothing"}},
        "no lock": {"lock": None},
        "weak passphrase lock": {"lock": {"by": "passphrase", "id": lock["id"], "salt": "00" * 16, "cost": 1}},
        "gigabytes": {"lock": {"by": "passphrase", "id": lock["id"], "salt": "00" * 16, "cost": 40}},
        "old format": {"format": 1},
        "new format": {"format": 3},
    }
    for name, fields in attempts.items():
        path.write_text(json.dumps(_changed(body, **fields)))
        with pytest.raises((Corrupt, CannotOpen)) as refusal:
            keyfile.read(path, KIND, MISSING)
            pytest.fail(name)
        assert str(path) in refusal.value.message and refusal.value.hint
    path.write_text(json.dumps(_changed(body, kind="sealcast broker")))
    with pytest.raises(Corrupt, match="not as it was written"):
        keyfile.read(path, "sealcast broker", MISSING)


def test_every_flipped_byte_is_found(own_key: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    good = path.read_bytes()
    for at in range(len(good) - 1):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        try:
            assert keyfile.read(path, KIND, MISSING) == BODY, "white space is not what counts"
        except SealcastError as error:
            assert isinstance(error, Corrupt), at


def test_a_file_that_was_copied_away_with_its_unlock_key_opens(own_key: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(path, elsewhere / "renamed.key")
    assert keyfile.read(elsewhere / "renamed.key", KIND, MISSING) == BODY
