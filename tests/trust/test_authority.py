"""The authority: issues, renews, is succeeded, goes offline; OpenSSL believes its certificates and its lists."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sealcast.errors import CertificateRejected, Corrupt, Misuse, NotFound, Rejected
from sealcast.primitives import x509, x509_lists
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.authority import (
    AUTHORITY_LIFETIME_US,
    BACKDATED_US,
    DAY_US,
    ENTITY,
    LIFETIME_US,
    MAX_DELTAS,
    Authority,
    CertificateWanted,
)
from sealcast.trust.certificates.certificate import Certificate, PublicKeys, Role
from sealcast.trust.certificates.revocation import NOTHING_REVOKED, Cause, RevocationLog
from sealcast.trust.vault import keyfile
from tests.trust.certified import NOW, REALM, SECOND, house, issue, keys


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Authority, Path]:
    made = Authority.generate(REALM, NOW)
    made.save(tmp_path / "authority")
    return made, tmp_path / "authority"


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(CertificateRejected) as refusal:
        call()
    return refusal.value.reason


# --- issuing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("roles", [ENTITY, {Role.BROKER}, {Role.KEY_CENTER, Role.DISCOVERY, Role.ENTITY, Role.BROKER}])
def test_what_is_issued_is_what_is_read_and_counts(roles: set[Role]) -> None:
    made = issue(house(), "alice", keys("alice"), roles, NOW + 123_456)
    assert certificates.parse(made.der) == made
    assert made.roles == roles and made.keys == keys("alice")
    assert (made.not_before_us, made.not_after_us) == (NOW, NOW + LIFETIME_US)
    assert house().trust().verify(made.der, NOW + DAY_US, NOTHING_REVOKED) == made


def test_many_at_once() -> None:
    wanted = [CertificateWanted(f"entity-{n}", keys(f"entity {n % 7}")) for n in range(100)]
    made = house().issue_many(wanted, NOW)
    assert [one.name for one in made] == [one.name for one in wanted]
    assert len({one.serial for one in made}) == len({one.fingerprint for one in made}) == 100
    assert {certificates.issued_by(one.serial) for one in made} == {2}
    trust = house().trust()
    assert all(trust.verify(one.der, NOW, NOTHING_REVOKED) == one for one in made)


@pytest.mark.parametrize(
    ("name", "roles", "bent"),
    [
        ("", ENTITY, {}),
        ("../alice", ENTITY, {}),
        ("Sealcast root", ENTITY, {}),
        ("a" * 65, ENTITY, {}),
        ("alice", set(), {}),
        ("alice", {Role.AUTHORITY}, {}),
        ("alice", {Role.ENTITY, Role.AUTHORITY}, {}),
        ("alice", ENTITY, {"identity": bytes(33)}),
        ("alice", ENTITY, {"verify_key": bytes(32)}),
        ("alice", ENTITY, {"kem_public": bytes(32)}),
        ("alice", ENTITY, {"kem_public": b""}),
    ],
)
def test_what_is_not_issued(name: str, roles: set[Role], bent: dict[str, bytes]) -> None:
    good = keys("alice")
    given = PublicKeys(**{f: bent.get(f, getattr(good, f)) for f in ("identity", "verify_key", "kem_public")})
    with pytest.raises((Misuse, Rejected)):
        house().issue_many([CertificateWanted("bob", good), CertificateWanted(name, given, frozenset(roles))], NOW)


def test_nothing_outlives_its_issuer() -> None:
    authority = Authority.generate(REALM, NOW, lifetime_us=30 * DAY_US)
    made = issue(authority, "alice", keys("alice"), ENTITY, NOW + 20 * DAY_US)
    assert made.not_after_us == authority.issuing.not_after_us
    issue(authority, "bob", keys("bob"), ENTITY, NOW - BACKDATED_US)
    for at in (NOW - BACKDATED_US - SECOND, NOW + 30 * DAY_US + 1):
        with pytest.raises(Misuse, match="issues nothing at this time"):
            issue(authority, "alice", keys("alice"), ENTITY, at)
    with pytest.raises(Misuse, match="a second at least"):
        issue(authority, "alice", keys("alice"), ENTITY, NOW, 1)


# --- root and authorities -------------------------------------------------------------------------


def test_the_root_goes_offline_and_comes_back(saved: tuple[Authority, Path], tmp_path: Path) -> None:
    _, directory = saved
    os.rename(directory / "root.key", tmp_path / "in the safe")
    authority = Authority.load(directory)
    alice = issue(authority, "alice", keys("alice"), ENTITY, NOW)
    assert authority.revoke([alice.serial], Cause.SUPERSEDED, NOW).number == 1
    for needs_root in (
        lambda: authority.succeed(NOW),
        lambda: authority.revoke([authority.issuing.serial], Cause.AUTHORITY_COMPROMISE, NOW),
        lambda: authority.crl(NOW, 0),
    ):
        with pytest.raises(NotFound, match="key of the root") as refusal:
            needs_root()
        assert "bring root.key back" in str(refusal.value.hint)
    os.rename(tmp_path / "in the safe", directory / "root.key")
    assert Authority.load(directory).succeed(NOW).name == "Sealcast authority 2"


def test_a_lost_authority_takes_everything_under_it_along(saved: tuple[Authority, Path]) -> None:
    authority, directory = saved
    entities = [issue(authority, n, keys(n), ENTITY, NOW) for n in ("alice", "bob")]
    second = authority.succeed(NOW + 1)
    carol = issue(authority, "carol", keys("carol"), ENTITY, NOW + SECOND)
    delta = authority.revoke([authority.authorities[0].serial], Cause.AUTHORITY_COMPROMISE, NOW + SECOND)
    assert certificates.parse(delta.signer_der) == authority.root
    again = Authority.load(directory)
    assert again.issuing == second and len(again.authorities) == 2
    for one in entities:
        assert reason(lambda one=one: again.trust().verify(one.der, NOW, again.lists.view)) == "issuer-revoked"  # type: ignore[misc]
    assert again.trust().verify(carol.der, NOW + SECOND, again.lists.view) == carol
    # Its certificates can still be named in lists, now by the root.
    late = again.revoke([entities[0].serial], Cause.KEY_COMPROMISE, NOW + SECOND)
    assert certificates.parse(late.signer_der) == authority.root


def test_the_next_authority_after_half_a_life(saved: tuple[Authority, Path]) -> None:
    authority, _ = saved
    at = NOW + AUTHORITY_LIFETIME_US // 2
    assert certificates.renewal_due(authority.issuing, at)
    alice = issue(authority, "alice", keys("alice"), ENTITY, at)
    authority.succeed(at)
    bob = issue(authority, "bob", keys("bob"), ENTITY, at)
    assert [certificates.issued_by(one.serial) for one in (alice, bob)] == [1, 2]
    assert {authority.trust().verify(one.der, at, NOTHING_REVOKED).name for one in (alice, bob)} == {"alice", "bob"}


def test_a_key_left_behind_by_a_cut_attempt_is_taken_up(
    saved: tuple[Authority, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, directory = saved

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sealcast.trust.certificates.authority_files.write_certificate", killed)
    with pytest.raises(KeyboardInterrupt):
        authority.succeed(NOW)
    monkeypatch.undo()
    assert (directory / "authority-2.key").exists() and not (directory / "authority-2.pem").exists()
    again = Authority.load(directory)
    assert len(again.authorities) == 1
    again.succeed(NOW)
    assert len(Authority.load(directory).authorities) == 2


def test_the_root_cannot_be_revoked_by_itself() -> None:
    authority = house()
    with pytest.raises(Misuse, match="cannot be revoked"):
        authority.revoke([authority.root.serial], Cause.KEY_COMPROMISE, NOW)
    with pytest.raises(Misuse, match="no certificate was named"):
        authority.revoke([], Cause.KEY_COMPROMISE, NOW)


# --- files ----------------------------------------------------------------------------------------


def test_files_hold_it_and_secrets_stay(saved: tuple[Authority, Path]) -> None:
    authority, directory = saved
    again = Authority.load(directory)
    assert (again.root, again.authorities, again.lists.view) == (
        authority.root,
        authority.authorities,
        authority.lists.view,
    )
    names = {"root.key", "root.pem", "authority-1.key", "authority-1.pem", "revocations"}
    assert set(os.listdir(directory)) == names
    assert all((directory / name).stat().st_mode & 0o077 == 0 for name in names)
    with pytest.raises(Misuse):
        pickle.dumps(again)
    with pytest.raises(Misuse, match="never overwritten|exists"):
        Authority.generate(REALM, NOW).save(directory)


def test_files_that_are_not_as_they_were(saved: tuple[Authority, Path], tmp_path: Path) -> None:
    _, directory = saved
    with pytest.raises(NotFound, match="no authority"):
        Authority.load(tmp_path)
    other = Authority.generate(REALM, NOW)
    other.save(tmp_path / "other")
    (directory / "authority-1.key").write_bytes((tmp_path / "other" / "authority-1.key").read_bytes())
    with pytest.raises(Corrupt, match="another key"):
        Authority.load(directory)
    (directory / "authority-1.key").unlink()
    (directory / "authority-1.pem").write_bytes((tmp_path / "other" / "authority-1.pem").read_bytes())
    with pytest.raises(CertificateRejected, match="nobody known here issued it"):
        Authority.load(directory)
    (directory / "authority-1.pem").write_text("nonsense")
    with pytest.raises(Corrupt, match="no authority's certificate"):
        Authority.load(directory)
    (directory / "authority-1.pem").unlink()
    with pytest.raises(Corrupt, match="lacks"):
        Authority.load(directory)


def test_a_key_file_of_another_kind(saved: tuple[Authority, Path]) -> None:
    _, directory = saved
    (directory / "root.key").unlink()
    keyfile.write(directory / "root.key", "sealcast authority", {"p256_private": "00"})
    with pytest.raises(Corrupt, match="no authority's key"):
        Authority.load(directory)


# --- CRLs -----------------------------------------------------------------------------------------


def openssl_verifies(directory: Path, authority: Authority, one: Certificate, crls: list[bytes], *more: str) -> str:
    """What `openssl verify` says, with the lists given."""
    (directory / "root.pem").write_bytes(x509.pem(authority.root.der))
    (directory / "between.pem").write_bytes(b"".join(x509.pem(a.der) for a in authority.authorities))
    (directory / "lists.pem").write_bytes(b"".join(x509_lists.crl_pem(der) for der in crls))
    (directory / "holder.pem").write_bytes(x509.pem(one.der))
    files = [directory / f for f in ("root.pem", "between.pem", "lists.pem", "holder.pem")]
    command = ["openssl", "verify", "-attime", str(NOW // SECOND + 60), "-crl_check_all", "-extended_crl", *more]
    command += [
        "-CAfile",
        *map(str, (files[0],)),
        "-untrusted",
        str(files[1]),
        "-CRLfile",
        str(files[2]),
        str(files[3]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "OK" if done.returncode == 0 else done.stderr


def test_openssl_believes_base_and_delta_lists(tmp_path: Path) -> None:
    authority = Authority.generate(REALM, NOW)
    alice, bob, carol = (issue(authority, n, keys(n), ENTITY, NOW) for n in ("alice", "bob", "carol"))
    authority.revoke([alice.serial], Cause.KEY_COMPROMISE, NOW)
    base, above = authority.crl(NOW), authority.crl(NOW, 0)
    authority.revoke([bob.serial], Cause.UNSPECIFIED, NOW + SECOND)
    delta = authority.crl(NOW, since=1)
    assert x509_lists.crl_serials(base) == (1, None, {alice.serial: NOW})
    assert x509_lists.crl_serials(delta) == (2, 1, {bob.serial: NOW + SECOND})
    whole = [authority.crl(NOW, 0), authority.crl(NOW)]
    for one, lists, said in (
        (alice, [above, base], "certificate revoked"),
        (bob, [above, base], "OK"),
        (bob, [above, base, delta], "certificate revoked"),
        (carol, [above, base, delta], "OK"),
        (bob, whole, "certificate revoked"),
        (carol, [base], "unable to get certificate CRL"),
    ):
        options = ["-use_deltas"] if delta in lists else []
        assert said in openssl_verifies(tmp_path, authority, one, lists, *options)
    authority.revoke([authority.issuing.serial], Cause.AUTHORITY_COMPROMISE, NOW + SECOND)
    assert "certificate revoked" in openssl_verifies(tmp_path, authority, carol, [authority.crl(NOW, 0), base])


def test_openssl_reads_the_lists() -> None:
    authority = house()
    alice = issue(authority, "alice", keys("alice"), ENTITY, NOW)
    authority.revoke([alice.serial], Cause.PRIVILEGE_WITHDRAWN, NOW)
    number = f"Serial Number: 0{alice.serial:X}"  # of generation 2: its first byte is 02
    for der, words in (
        (authority.crl(NOW), [number, "Privilege Withdrawn", "Freshest CRL"]),
        (authority.crl(NOW, since=0), ["X509v3 Delta CRL Indicator: critical", number]),
        (authority.crl(NOW, 0), ["No Revoked Certificates", f"O = {REALM.hex()}, CN = Sealcast root"]),
    ):
        done = subprocess.run(
            ["openssl", "crl", "-inform", "DER", "-noout", "-text"], input=der, capture_output=True, check=True
        )
        said = done.stdout.decode()
        assert all(word in said for word in words), said
    with pytest.raises(Misuse, match="no list 7"):
        authority.crl(NOW, since=7)


# --- revocations ----------------------------------------------------------------------------------


def test_revoking_again_changes_nothing() -> None:
    authority = house()
    alice, bob = (issue(authority, n, keys(n), ENTITY, NOW) for n in ("alice", "bob"))
    first = authority.revoke([alice.serial], Cause.KEY_COMPROMISE, NOW)
    assert authority.revoke([alice.serial], Cause.SUPERSEDED, NOW + 1) == first
    both = authority.revoke([alice.serial, bob.serial], Cause.SUPERSEDED, NOW + 1)
    assert (both.number, set(both.entries)) == (2, {bob.serial})
    assert authority.lists.view.entries[alice.serial].cause is Cause.KEY_COMPROMISE
    assert authority.revoke([alice.serial], Cause.SUPERSEDED, NOW + 1) == first


def test_certificates_of_several_authorities_at_once() -> None:
    authority = Authority.generate(REALM, NOW)
    alice = issue(authority, "alice", keys("alice"), ENTITY, NOW)
    authority.succeed(NOW)
    bob = issue(authority, "bob", keys("bob"), ENTITY, NOW)
    last = authority.revoke([alice.serial, bob.serial, authority.authorities[0].serial], Cause.SUPERSEDED, NOW)
    assert last.number == authority.lists.view.number == 3
    assert all(authority.lists.view.is_revoked(s) for s in (alice.serial, bob.serial, authority.authorities[0].serial))


def test_who_is_far_behind_gets_the_whole_list() -> None:
    authority = house()
    for number in range(MAX_DELTAS + 2):
        authority.revoke([(2 << 112) | number + 1], Cause.SUPERSEDED, NOW + number)
    assert authority.revocations(authority.lists.view.number) == []
    assert len(authority.revocations(2)) == MAX_DELTAS
    for behind in (0, 1):
        (whole,) = authority.revocations(behind)
        newcomer = RevocationLog(authority.trust())
        assert newcomer.accept([whole]).entries.keys() == authority.lists.view.entries.keys()
        assert (newcomer.view.number, newcomer.view.digest) == (
            authority.lists.view.number,
            authority.lists.view.digest,
        )


def test_an_entity_signs_no_lists() -> None:
    authority = house()
    alice = issue(authority, "alice", keys("alice"), {Role.KEY_CENTER}, NOW)
    assert reason(lambda: authority.trust().verify_authority(alice.der, NOW, NOTHING_REVOKED)) == "ca-bit"
