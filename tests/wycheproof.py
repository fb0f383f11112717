"""Project Wycheproof's attacks on primitives, driven through `primitives/`: JSON files from a folder that is given.

    python -m tests.wycheproof FOLDER        FOLDER has aes_gcm_test.json, ed25519_test.json, ...

The files are not ours and not in the tree (https://github.com/C2SP/wycheproof, testvectors_v1). A file that is missing
is named, and so are cases that our primitives do not take at all, such as nonces of other lengths. What the project
calls `acceptable` may go either way.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from sealcast.errors import CannotOpen, Misuse, Rejected
from sealcast.primitives import aead, kdf, mac
from sealcast.primitives.aead import NONCE_BYTES, SealingKey
from sealcast.primitives.p256 import Hash, P256VerifyKey
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import VerifyKey
from sealcast.primitives.x25519 import _SALT, AgreementKey

Case = dict[str, Any]
#: Whether the primitive accepts a case, of a group; None for one that is not of our form.
Judge = Callable[[Case, Case], bool | None]


class Outcome(NamedTuple):
    """Of one file: cases judged, cases not of our form, and those that were judged wrongly."""

    judged: int
    skipped: int
    wrong: list[str]


def _gcm(group: Case, case: Case) -> bool | None:
    key, iv = bytes.fromhex(case["key"]), bytes.fromhex(case["iv"])
    if len(iv) != NONCE_BYTES or group["tagSize"] != 128:
        return None
    with mock.patch.object(aead, "_expand", lambda secret, context: key.ljust(32, b"\0") + bytes(32)):
        ours = SealingKey(Secret(bytes(32)), b"", 8 * len(key))
    sealed, more = bytes.fromhex(case["ct"] + case["tag"]), bytes.fromhex(case["aad"])
    try:
        opened = ours.open(iv, bytes(32), sealed, more)
    except CannotOpen:
        return False
    return opened == bytes.fromhex(case["msg"]) and ours.seal(iv, opened, more) == sealed


def _ed25519(group: Case, case: Case) -> bool | None:
    try:
        key = VerifyKey(bytes.fromhex(group["publicKey"]["pk"]))
    except Rejected:
        return False
    return key.verify(bytes.fromhex(case["msg"]), bytes.fromhex(case["sig"]))


def _x25519(group: Case, case: Case) -> bool | None:
    own, peer = AgreementKey(Secret(bytes.fromhex(case["private"]))), bytes.fromhex(case["public"])
    try:
        agreed = own.agreed(peer, b"wycheproof")
    except Rejected:
        return False
    extracted = Secret(kdf.hkdf_extract(_SALT, bytes.fromhex(case["shared"])))
    return agreed.reveal() == kdf.derive(extracted, *sorted((own.public, peer)), b"wycheproof").reveal()


def _ecdsa(hashed: Hash) -> Judge:
    def judge(group: Case, case: Case) -> bool | None:
        whole = bytes.fromhex(group["publicKey"]["uncompressed"])
        try:
            key = P256VerifyKey(bytes([2 + whole[-1] % 2]) + whole[1:33])
        except Rejected:
            return False
        return key.verify(bytes.fromhex(case["msg"]), bytes.fromhex(case["sig"]), hashed)

    return judge


def _hmac(group: Case, case: Case) -> bool | None:
    key = bytes.fromhex(case["key"])
    if len(key) < 32 or group["tagSize"] != 256:
        return None
    with mock.patch.object(mac, "joined", lambda parts: parts[0]):
        return mac.verify(Secret(key), bytes.fromhex(case["tag"]), bytes.fromhex(case["msg"]))


def _hkdf(group: Case, case: Case) -> bool | None:
    extracted = kdf.hkdf_extract(bytes.fromhex(case["salt"]), bytes.fromhex(case["ikm"]))
    try:
        return kdf.hkdf_expand(extracted, bytes.fromhex(case["info"]), case["size"]).hex() == case["okm"]
    except Misuse:
        return False


FILES: dict[str, Judge] = {
    "aes_gcm_test.json": _gcm,
    "ed25519_test.json": _ed25519,
    "x25519_test.json": _x25519,
    "ecdsa_secp256r1_sha256_p1363_test.json": _ecdsa(Hash.SHA256),
    "ecdsa_secp256r1_sha512_p1363_test.json": _ecdsa(Hash.SHA512),
    "hmac_sha256_test.json": _hmac,
    "hkdf_sha256_test.json": _hkdf,
}


def run(path: Path) -> Outcome:
    """Judges every case of one file."""
    judge, counts, wrong = FILES[path.name], Counter[str](), list[str]()
    for group in json.loads(path.read_text())["testGroups"]:
        for case in group["tests"]:
            accepted = judge(group, case)
            counts["skipped" if accepted is None else "judged"] += 1
            if accepted is not None and case["result"] != "acceptable" and accepted != (case["result"] == "valid"):
                wrong.append(f"{path.name}: case {case['tcId']} ({case['comment']}) is {case['result']}")
    return Outcome(counts["judged"], counts["skipped"], wrong)


def main(folder: Path) -> int:
    missing, wrong = [name for name in FILES if not (folder / name).is_file()], 0
    for name in (each for each in FILES if each not in missing):
        found = run(folder / name)
        wrong += len(found.wrong)
        print(f"{name}: {found.judged} cases judged, {found.skipped} not of our form, {len(found.wrong)} wrong")
        print(*found.wrong, sep="\n", end="\n" * bool(found.wrong))
    if missing:
        print(f"not in {folder}: {', '.join(missing)}", file=sys.stderr)
    return 1 if wrong or len(missing) == len(FILES) else 0


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        if len(sys.argv) != 2:
            sys.exit("usage: python -m tests.wycheproof FOLDER")
        sys.exit(main(Path(sys.argv[1])))
