"""Unlock keys that no file holds in clear: a PKCS#11 token, a key service in another process, a service manager."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sealcast.errors import CannotOpen, Corrupt, Misuse, NotFound, Rejected, SealcastError, Unavailable
from sealcast.primitives.secrets import Secret
from sealcast.primitives.token import TokenKey
from sealcast.trust.vault import credentials, keyfile, services, unlock, unlock_file
from sealcast.trust.vault.pkcs11 import MODULE_VARIABLE, PIN_CREDENTIAL, PIN_FILE_VARIABLE
from tests.cli.shell import sealcast
from tests.trust.softhsm import ADDRESS, LABEL, MODULE, PIN, Token, make_token

KIND = "sealcast entity"
BODY = {"entity": "alice", "ed25519_seed": "5e" * 32}
MISSING = NotFound("missing")


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Token]:
    with pytest.MonkeyPatch.context() as patch:
        made = make_token(tmp_path_factory.mktemp("hsm"))
        # SoftHSM reads its configuration when its module is loaded, which is once in a process.
        patch.setenv("SOFTHSM2_CONF", str(made.configuration))
        yield made


@pytest.fixture
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine" / "unlock.key"
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(path))
    return path


@pytest.fixture
def pin(tmp_path: Path, token: Token, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "pin"
    path.touch(0o600)
    path.write_text(f"{PIN}\n")
    monkeypatch.setenv(PIN_FILE_VARIABLE, str(path))
    monkeypatch.setenv(MODULE_VARIABLE, str(MODULE))
    return path


def written(directory: Path, name: str = "alice.key") -> Path:
    path = directory / name
    keyfile.write(path, KIND, BODY)
    return path


def forget() -> None:
    """As a process that starts: nothing was unlocked yet."""
    unlock._keys.clear()


# --- a token ----------------------------------------------------------------------------------------


def test_a_token_wraps_the_key_and_gives_it_back(own_key: Path, pin: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    before = unlock.for_writing().key
    assert before.reveal().hex() in own_key.read_text()
    unlock.wrap(ADDRESS, services.open_service(ADDRESS))
    forget()
    assert before.reveal().hex() not in own_key.read_text() and own_key.stat().st_mode & 0o777 == 0o600
    assert keyfile.read(path, KIND, MISSING) == BODY, "key files stay as they are"
    held = unlock.look(own_key)
    assert held is not None and held.service == ADDRESS and held.id == unlock.for_writing().lock.id


def test_a_key_that_is_made_for_a_token_is_never_written_in_clear(own_key: Path, pin: Path, tmp_path: Path) -> None:
    unlock.wrap(ADDRESS, services.open_service(ADDRESS))
    assert json.loads(own_key.read_text())["format"] == unlock_file.WRAPPED
    key = unlock.for_writing().key.reveal()
    contents = [p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()]
    assert not any(key in content or key.hex().encode() in content for content in contents)


def test_whoever_copies_the_files_and_not_the_token_opens_nothing(
    own_key: Path, pin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thief has the realm's files, the unlock key's file and the PIN, and a token of the same name of its own. On a
    key in clear, which is the weaker variant, the same theft succeeds."""
    in_clear = written(tmp_path, "weak.key")
    loot = tmp_path / "loot"
    loot.mkdir()
    shutil.copy(own_key, loot / "clear.key")
    unlock.wrap(ADDRESS, services.open_service(ADDRESS))
    shutil.copy(own_key, loot / "wrapped.key")
    forget()
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(loot / "clear.key"))
    assert keyfile.read(in_clear, KIND, MISSING) == BODY, "the weaker variant"
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(loot / "wrapped.key"))
    thief = make_token(tmp_path / "thief")
    attempt = (
        "import sys; from pathlib import Path; from sealcast.trust.vault import keyfile\n"
        "from sealcast.errors import NotFound, SealcastError\n"
        "try: keyfile.read(Path(sys.argv[1]), 'sealcast entity', NotFound('x')); print('opened')\n"
        "except SealcastError as error: print(type(error).__name__, error)"
    )

    def tried(configuration: Path) -> str:
        environment = {**os.environ, "SOFTHSM2_CONF": str(configuration)}
        command = [sys.executable, "-c", attempt, str(in_clear)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert tried(Path(os.environ["SOFTHSM2_CONF"])) == "opened"
    assert tried(thief.configuration).startswith("CannotOpen")


def test_the_key_of_a_token_cannot_be_taken_out(token: Token, pin: Path) -> None:
    import pkcs11

    with pkcs11.lib(str(MODULE)).get_token(token_label=token.label).open(user_pin=PIN) as session:
        key = session.get_key(object_class=pkcs11.ObjectClass.SECRET_KEY, label=LABEL)
        assert key[pkcs11.Attribute.EXTRACTABLE] is False and key[pkcs11.Attribute.SENSITIVE] is True
        with pytest.raises(pkcs11.PKCS11Error):
            key[pkcs11.Attribute.VALUE]


def test_what_a_token_wrapped_opens_unaltered_and_for_its_context_alone(token: Token, pin: Path) -> None:
    key = TokenKey(MODULE, token.label, LABEL, Secret(PIN.encode()))
    wrapped = key.wrap(bytes(32), b"context")
    assert key.unwrap(wrapped, b"context") == bytes(32) and key.wrap(bytes(32), b"context") != wrapped
    for at in range(0, len(wrapped), 7):
        with pytest.raises(CannotOpen):
            key.unwrap(wrapped[:at] + bytes([wrapped[at] ^ 1]) + wrapped[at + 1 :], b"context")
    for bad, context in ((wrapped, b"other"), (wrapped[:20], b"context"), (b"", b"context")):
        with pytest.raises(CannotOpen):
            key.unwrap(bad, context)


@pytest.mark.parametrize(
    ("label", "object", "number", "expected", "says"),
    [
        ("nobody", LABEL, PIN, NotFound, "there is no token 'nobody'"),
        ("sealcast", "other", PIN, NotFound, "has no AES key 'other'"),
        ("sealcast", LABEL, "4321", CannotOpen, "refuses the PIN"),
    ],
)
def test_what_is_wrong_with_a_token_is_named(
    token: Token, label: str, object: str, number: str, expected: type[SealcastError], says: str
) -> None:
    with pytest.raises(expected, match=says) as refusal:
        TokenKey(MODULE, label, object, Secret(number.encode())).wrap(bytes(32), b"")
    assert refusal.value.hint and number not in str(refusal.value) + str(refusal.value.__notes__)


def test_a_token_makes_a_key_of_a_label_once(token: Token) -> None:
    key = TokenKey(MODULE, token.label, "second", Secret(PIN.encode()))
    key.make()
    with pytest.raises(Misuse, match="already"):
        key.make()
    assert key.unwrap(key.wrap(b"x" * 32, b""), b"") == b"x" * 32


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("pkcs11:token=sealcast", "names token and object"),
        ("pkcs11:token=sealcast;object=a;object=b", "not understood"),
        ("pkcs11:token=sealcast;object=a;slot-id=1", "not understood"),
        ("pkcs11:token=;object=a", "not understood"),
        ("pkcs11:token=sealcast;object=a?pin-value=1234", "no query"),
        ("pkcs11:token=sealcast;object=a?module-path=/tmp/evil.so", "no query"),
        ("pkcs11:", "SCHEME:REST"),
        ("pkcs11", "SCHEME:REST"),
        ("acme:" + "x" * 2000, "SCHEME:REST"),
        ("acme:key\n", "SCHEME:REST"),
        ("acme:key", "no key service is called 'acme'; there are: pkcs11"),
    ],
)
def test_addresses_that_are_none(pin: Path, address: str, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        services.open_service(address)


def test_what_a_token_needs_beside_its_address_is_named(
    own_key: Path, pin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PIN_FILE_VARIABLE)
    with pytest.raises(Unavailable, match="no PIN") as refusal:
        services.open_service(ADDRESS)
    assert refusal.value.hint is not None and PIN_FILE_VARIABLE in refusal.value.hint
    monkeypatch.setenv(PIN_FILE_VARIABLE, str(pin))
    pin.chmod(0o644)
    with pytest.raises(Rejected, match="can be read by others"):
        services.open_service(ADDRESS)
    monkeypatch.setenv(MODULE_VARIABLE, str(tmp_path / "none.so"))
    with pytest.raises(Unavailable, match=r"none\.so is no file"):
        services.open_service(ADDRESS)
    monkeypatch.delenv(MODULE_VARIABLE)
    with pytest.raises(Unavailable, match="no PKCS#11 module"):
        services.open_service(ADDRESS)


# --- another key service ------------------------------------------------------------------------------


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A key service in a process of its own, and the provider for it: both as docs/unlock-keys.md shows them."""
    from tests.docs.paste import ROOT, blocks

    shown = [block.text for block in blocks(ROOT / "docs" / "unlock-keys.md") if block.tag == "python"]
    provider = next(text for text in shown if "def open_service" in text)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "acme_keys.py").write_text(provider)
    server = Path(__file__).with_name("acme_server.py")
    process = subprocess.Popen([sys.executable, server], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.setenv(services.SERVICES_VARIABLE, "acme=acme_keys:open_service")
    yield f"acme:http://127.0.0.1:{port}/keys/unlock"
    process.terminate()
    process.wait()
    sys.modules.pop("acme_keys", None)


def test_a_service_of_the_operators_own(own_key: Path, acme: str, tmp_path: Path) -> None:
    path = written(tmp_path)
    result = sealcast("unlock-key", "wrap", "--service", acme, "--yes", "--json")
    assert result.code == 0 and result.document["service"] == acme
    forget()
    assert keyfile.read(path, KIND, MISSING) == BODY
    body = json.loads(own_key.read_text())
    own_key.write_text(json.dumps({**body, "wrapped": bytes.fromhex(body["wrapped"])[::-1].hex()}))
    forget()
    with pytest.raises(CannotOpen):
        keyfile.read(path, KIND, MISSING)
    own_key.write_text(json.dumps({**body, "id": "00" * 8}))
    with pytest.raises(CannotOpen):
        keyfile.read(path, KIND, MISSING)
    own_key.write_text(json.dumps({**body, "service": acme.replace("/unlock", "/other")}))
    with pytest.raises(CannotOpen):
        keyfile.read(path, KIND, MISSING)
    refused = sealcast("unlock-key", "wrap", "--service", acme, "--make-key", "--to", tmp_path / "x")
    assert refused.code == 1 and "does not make keys" in refused.err


def test_a_service_that_is_not_there(own_key: Path, acme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealcast("unlock-key", "wrap", "--service", acme, "--yes")
    path = written(tmp_path)
    body = json.loads(own_key.read_text())
    own_key.write_text(json.dumps({**body, "service": "acme:http://127.0.0.1:1/keys/unlock"}))
    forget()
    with pytest.raises(Unavailable):
        keyfile.read(path, KIND, MISSING)
    for named, says in (
        ("acme=nowhere_to_be_found:open_service", "no module 'nowhere_to_be_found'"),
        ("acme=acme_keys:nothing", "has no 'nothing'"),
        ("acme", "is not a new"),
        ("pkcs11=acme_keys:open_service", "is not a new"),
    ):
        monkeypatch.setenv(services.SERVICES_VARIABLE, named)
        with pytest.raises(SealcastError, match=says):
            services.open_service("acme:x")


@pytest.mark.parametrize(
    "change",
    [
        {"wrapped": ""},
        {"wrapped": "zz"},
        {"service": 7},
        {"service": "x" * 2000},
        {"id": "00"},
        {"format": 3},
        {"kind": "sealcast entity"},
    ],
)
def test_files_of_wrapped_keys_that_are_none(own_key: Path, tmp_path: Path, change: dict[str, object]) -> None:
    body = {"format": 2, "kind": unlock_file.KIND, "id": "00" * 8, "service": "acme:x", "wrapped": "00"}
    own_key.parent.mkdir()
    own_key.touch(0o600)
    own_key.write_text(json.dumps({**body, **change}))
    with pytest.raises(Corrupt, match="no unlock key"):
        unlock.look(own_key)


# --- a service manager --------------------------------------------------------------------------------


def test_credentials_of_a_service_manager(
    tmp_path: Path, pin: Path, token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(unlock.KEY_VARIABLE, str(tmp_path / "unlock.key"))
    path = written(tmp_path)
    unlock.wrap(ADDRESS, services.open_service(ADDRESS))
    given = tmp_path / "credentials"
    given.mkdir()
    shutil.move(tmp_path / "unlock.key", given / unlock.KEY_CREDENTIAL)
    shutil.move(pin, given / PIN_CREDENTIAL)
    monkeypatch.delenv(unlock.KEY_VARIABLE)
    monkeypatch.delenv(PIN_FILE_VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(credentials.DIRECTORY_VARIABLE, str(given))
    for name in (unlock.KEY_CREDENTIAL, PIN_CREDENTIAL):
        (given / name).chmod(0o440)  # as systemd's access lists look
    forget()
    assert keyfile.read(path, KIND, MISSING) == BODY
    assert sealcast("unlock-key", "show", "--json").document["service"] == ADDRESS
    (given / unlock.KEY_CREDENTIAL).chmod(0o444)
    forget()
    with pytest.raises(Rejected, match="can be read by others"):
        keyfile.read(path, KIND, MISSING)


def test_a_passphrase_as_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_key: Path) -> None:
    from sealcast.primitives import passphrase

    monkeypatch.setattr(passphrase, "COST", passphrase.LEAST_COST)
    monkeypatch.setenv(credentials.DIRECTORY_VARIABLE, str(tmp_path))
    (tmp_path / unlock.PASSPHRASE_CREDENTIAL).write_text("handed over by the service manager\n")
    (tmp_path / unlock.PASSPHRASE_CREDENTIAL).chmod(0o400)
    path = written(tmp_path)
    assert keyfile.look(path).lock.by == "passphrase" and keyfile.read(path, KIND, MISSING) == BODY
    (tmp_path / unlock.PASSPHRASE_CREDENTIAL).unlink()
    with pytest.raises(Unavailable, match="none was given"):
        keyfile.read(path, KIND, MISSING)


# --- commands -----------------------------------------------------------------------------------------


def test_wrapping_in_place_asks_first(own_key: Path, pin: Path, tmp_path: Path) -> None:
    assert sealcast("unlock-key", "show").out.strip().endswith("it is made when it is needed")
    unlock.for_writing()
    assert "in clear" in sealcast("unlock-key", "show").out
    refused = sealcast("unlock-key", "wrap", "--service", ADDRESS)
    assert refused.code == 1 and "--yes" in refused.err and unlock.look(own_key) is None
    second = tmp_path / "second.key"
    assert sealcast("unlock-key", "wrap", "--service", ADDRESS, "--to", second).code == 0, "the first one stays"
    assert unlock.look(own_key) is None and unlock.look(second) is not None
    assert sealcast("unlock-key", "wrap", "--service", ADDRESS, "--yes").code == 0
    assert ADDRESS in sealcast("unlock-key", "show").out
    inspected = sealcast("inspect", own_key).out
    assert "a wrapped unlock key" in inspected and ADDRESS in inspected
