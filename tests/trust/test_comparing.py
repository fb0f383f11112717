"""Two clients find out whether they see one history."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sealcast.errors import Rejected
from sealcast.trust.comparing import Histories, compare, signed_head
from sealcast.trust.deployment import Realm
from sealcast.trust.heads import SignedHead
from sealcast.trust.realm.authors import ADMINISTRATOR
from tests.cli.shell import sealcast


@pytest.fixture
def realm(tmp_path: Path) -> Realm:
    made = Realm.create(tmp_path / "here")
    made.enrol_many(["alice", "bob"])
    return made


def by(realm: Realm, name: str = ADMINISTRATOR) -> SignedHead:
    author = realm.author(name)
    assert author is not None
    return SignedHead.parse(str(signed_head(realm, author)))


def test_one_history_or_two(realm: Realm, tmp_path: Path) -> None:
    there = Realm(shutil.copytree(realm.paths.root, tmp_path / "there"))
    seen = by(realm, "alice")
    assert compare(there, seen).verdict is Histories.SAME
    there.enrol("carol")
    assert compare(there, seen).verdict is Histories.EXTENDS
    assert compare(realm, by(there)).verdict is Histories.BEHIND
    realm.enrol("dave")
    found = compare(there, by(realm, "bob"))
    assert found.verdict is Histories.FORK and found.author == "bob"
    realm.enrol("erin")
    assert compare(realm, by(there)).verdict is Histories.FORK


def test_a_head_is_what_its_author_signed(realm: Realm, tmp_path: Path) -> None:
    seen = by(realm, "alice")
    for forged in (
        SignedHead(seen.realm, seen.head._replace(version=1), seen.author, seen.signature),
        SignedHead(seen.realm, seen.head._replace(chain=bytes(32)), seen.author, seen.signature),
        SignedHead(seen.realm, seen.head, "bob", seen.signature),
        SignedHead(seen.realm, seen.head, ADMINISTRATOR, seen.signature),
    ):
        with pytest.raises(Rejected, match="not signed by"):
            compare(realm, forged)
    with pytest.raises(Rejected, match="another realm"):
        compare(Realm.create(tmp_path / "other"), seen)
    realm.revoke_entity("alice")
    with pytest.raises(Rejected, match="revoked"):
        compare(realm, seen)


@pytest.mark.parametrize("text", ["", "head", *("sealcast-head-1." + rest for rest in ("", "gA", "A" * 2_000))])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(Rejected, match="no head"):
        SignedHead.parse(text)


def test_the_commands(realm: Realm, tmp_path: Path) -> None:
    there = Realm(shutil.copytree(realm.paths.root, tmp_path / "there"))
    printed = sealcast("registry", "head", "--as", "alice", "--realm", realm.paths.root, "--json").document
    assert printed["version"] == realm.state().version and printed["by"] == "alice"
    same = sealcast("registry", "compare", printed["head"], "--realm", there.paths.root)
    assert same.code == 0 and "the same history" in same.out
    realm.enrol("carol")
    there.enrol("dave")
    line = sealcast("registry", "head", "--realm", realm.paths.root).out.split("head")[-1].strip()
    forked = sealcast("registry", "compare", "sealcast-head" + line, "--realm", there.paths.root)
    assert forked.code == 1 and "a fork" in forked.out
