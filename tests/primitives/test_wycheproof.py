"""Wycheproof's files, where SEALCAST_WYCHEPROOF names a folder that has them; and the tool that reads them, always."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sealcast.primitives import mac
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey
from tests import wycheproof

FOLDER = os.environ.get("SEALCAST_WYCHEPROOF")


@pytest.mark.parametrize("name", wycheproof.FILES)
def test_every_case_is_judged_as_its_authors_say(name: str) -> None:
    if FOLDER is None:
        pytest.skip("SEALCAST_WYCHEPROOF names no folder with Wycheproof's testvectors_v1 (github.com/C2SP/wycheproof)")
    path = Path(FOLDER) / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    found = wycheproof.run(path)
    assert found.judged and not found.wrong


def signatures(tmp_path: Path, **results: str) -> Path:
    """A file in their form: one good signature, one of another message, and one that is too short."""
    signer = SigningKey(Secret(bytes(range(32))))
    signed = signer.sign(b"hello").hex()
    cases = {
        "good": {"msg": b"hello".hex(), "sig": signed, "result": "valid"},
        "other": {"msg": b"hallo".hex(), "sig": signed, "result": "invalid"},
        "short": {"msg": b"hello".hex(), "sig": signed[:-2], "result": "acceptable"},
    }
    tests = [
        {"tcId": number, "comment": name, **case, "result": results.get(name, case["result"])}
        for number, (name, case) in enumerate(cases.items(), 1)
    ]
    groups = [{"publicKey": {"pk": bytes(signer.verify_key).hex()}, "tests": tests}]
    path = tmp_path / "ed25519_test.json"
    path.write_text(json.dumps({"testGroups": groups}))
    return path


def test_the_tool_judges_and_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wycheproof.run(signatures(tmp_path)) == (3, 0, [])
    assert wycheproof.main(tmp_path) == 0
    told = capsys.readouterr()
    assert "3 cases judged" in told.out and "aes_gcm_test.json" in told.err
    found = wycheproof.run(signatures(tmp_path, good="invalid", other="valid"))
    assert [line.split(": ")[1] for line in found.wrong] == ["case 1 (good) is invalid", "case 2 (other) is valid"]
    assert wycheproof.main(tmp_path) == 1
    assert wycheproof.main(tmp_path / "nowhere") == 1, "a folder without any of them is no success"


def test_cases_of_another_form_are_counted_apart(tmp_path: Path) -> None:
    key = bytes(32)
    tag = "00" * 32
    tests = [{"tcId": 1, "comment": "", "key": key.hex(), "msg": "", "tag": tag, "result": "invalid"}]
    path = tmp_path / "hmac_sha256_test.json"
    path.write_text(json.dumps({"testGroups": [{"tagSize": 256, "tests": tests}, {"tagSize": 128, "tests": tests}]}))
    assert wycheproof.run(path) == (1, 1, [])
    assert mac.tag(Secret(key), b"") != bytes(32)
