"""sealcast authority: whom the realm believes, its next authority, and lists that OpenSSL reads."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from sealcast.errors import CertificateRejected, TokenRejected
from sealcast.trust.certificates.authority import Authority
from sealcast.trust.certificates.certificate import CertificateReason, Role
from sealcast.trust.certificates.lists import RevocationReason
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.changes import Right
from sealcast.trust.tokens import gates
from tests.cli.shell import sealcast
from tests.trust.certified import issue, keys

DOCUMENT = Path(__file__).parents[2] / "docs" / "trust" / "authority.md"


def test_show_names_root_and_chain(home: Path) -> None:
    realm = Realm(home)
    told = sealcast("authority", "show", "--json").document
    assert told["root"] == realm.authority().root.fingerprint.hex()
    assert told["realm"] == realm.id.hex()
    assert [(one["name"], one["standing"], one["key"]) for one in told["chain"]] == [
        ("Sealcast root", "valid", "here"),
        ("Sealcast authority 1", "valid", "here"),
    ]
    assert told["chain"][1]["issued"] == len(realm.state().entities)
    assert told["revocations"] == {"number": 0, "revoked": 0, "at": None}
    said = sealcast("authority", "show")
    assert told["root"] in said.out and "Sealcast authority 1" in said.out


def test_after_a_revocation(home: Path) -> None:
    assert sealcast("entity", "revoke", "bob").code == 0
    told = sealcast("authority", "show", "--json").document["revocations"]
    assert (told["number"], told["revoked"]) == (1, 1)
    serial = Realm(home).state().entity("bob").serials[-1]
    written = sealcast("authority", "crl", "--out", "bob.crl", "--json").document
    assert (written["number"], written["base"], written["entries"]) == (1, None, 1)
    text = subprocess.run(
        ["openssl", "crl", "-inform", "DER", "-in", "bob.crl", "-noout", "-text"], capture_output=True, check=True
    )
    assert f"{serial:X}" in text.stdout.decode()
    delta = sealcast("authority", "crl", "--since", "0", "--pem")
    assert delta.code == 0 and delta.out.startswith("-----BEGIN X509 CRL-----")
    none_new = sealcast("authority", "crl", "--since", "1", "--out", "none.crl", "--json").document
    assert (none_new["base"], none_new["entries"]) == (1, 0)


def test_the_next_authority(home: Path) -> None:
    made = sealcast("authority", "succeed", "--json").document
    assert (made["name"], made["number"], made["standing"]) == ("Sealcast authority 2", 2, "valid")
    assert sealcast("entity", "enrol", "carol").code == 0
    chain = sealcast("authority", "show", "--json").document["chain"]
    assert chain[2]["issued"] == 1
    realm = Realm(home)
    carol = realm.trust().verify(realm.state().entity("carol").certificate, realm.clock(), realm.state().revoked)
    assert (carol.name, carol.roles) == ("carol", {Role.ENTITY})


def test_a_successor_that_was_cut_short_is_made_known(home: Path) -> None:
    realm = Realm(home)
    realm.authority().succeed(realm.clock())
    assert sealcast("authority", "succeed", "--json").document["number"] == 2
    assert len(realm.authority().authorities) == len(realm.trust().intermediates) == 2


def test_a_lost_authority_is_replaced_and_life_goes_on(home: Path) -> None:
    add = ("subscription", "add", "quotes", "--as", "alice", "--filter", "price > 100")
    assert sealcast(*add).code == 0
    assert sealcast("entity", "revoke", "bob").code == 0
    realm = Realm(home)
    before = realm.state()
    thief = Authority.load(home / "secrets" / "authority")
    stolen = issue(thief, "alice", keys("mallory"), {Role.ENTITY}, realm.clock())
    assert realm.trust().verify(stolen.der, realm.clock(), before.revoked), "whoever has the key is believed"
    done = sealcast("authority", "replace", "--json").document
    assert (done["made"]["number"], done["revoked"]) == (2, ["Sealcast authority 1"])
    after = realm.state()
    assert done["renewed"] == sum(not who.revoked for who in after.entities.values())
    for name, who in after.entities.items():
        if not who.revoked:
            assert realm.trust().verify(who.certificate, realm.clock(), after.revoked, name=name)
        for der in (*who.former, *([who.certificate] if who.revoked else [])):
            assert refusal(realm, der) == CertificateReason.ISSUER_REVOKED
    assert refusal(realm, stolen.der) == CertificateReason.ISSUER_REVOKED
    # Subscriptions have tokens under the next one, by which the gate lets them pass.
    (id,) = after.topic_state("quotes").credentials
    old, new = (state.topic_state("quotes").credentials[id].token for state in (before, after))
    topic, holder = after.topic("quotes"), after.entity("alice").verify_key
    gate = gates.gate_of(after)
    assert gate.verify(new, topic, realm.clock(), Right.SUBSCRIBE, holder)
    with pytest.raises(TokenRejected):
        gate.verify(old, topic, realm.clock(), Right.SUBSCRIBE, holder)
    assert sealcast("entity", "enrol", "carol").code == 0
    assert sealcast("authority", "show", "--json").document["chain"][1]["standing"] == "revoked"


def refusal(realm: Realm, der: bytes) -> str:
    with pytest.raises(CertificateRejected) as refused:
        realm.trust().verify(der, realm.clock(), realm.state().revoked)
    return refused.value.reason


def test_refusals_say_what_to_do(home: Path) -> None:
    os.rename("secrets/authority/root.key", "../safe")
    refused = sealcast("authority", "succeed")
    assert refused.code == 1 and "key of the root" in refused.err and "bring root.key back" in refused.err
    assert sealcast("authority", "crl", "--authority", "0", "--out", "x").code == 1
    assert sealcast("authority", "show", "--json").document["chain"][0]["key"] == "elsewhere"
    assert sealcast("entity", "enrol", "dora").code == 0, "daily work goes on"
    unknown = sealcast("authority", "crl", "--authority", "9", "--out", "x", "--json")
    assert unknown.code == 1 and unknown.document["error"] == "misuse"
    assert "add --out FILE" in sealcast("authority", "crl", "--json").err
    assert "without --since" in sealcast("authority", "crl", "--since", "5", "--pem").err
    os.rename("secrets/authority", "../authority")
    gone = sealcast("authority", "crl", "--pem")
    assert gone.code == 1 and "no authority" in gone.err
    assert sealcast("authority", "show").code == 0, "what is public is shown without any secret"


def test_the_documents_reasons_are_the_codes() -> None:
    text = DOCUMENT.read_text()
    told = re.findall(r"^\| (\d+) \| `([\w-]+)` \|", text, re.MULTILINE)
    assert told == [(str(number), str(reason)) for number, reason in enumerate(CertificateReason, start=1)]
    lists = text[text.index("## Revocation lists") :]
    rows = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \|", lists, re.MULTILINE)
    assert [word for row in rows for word in re.findall(r"`([\w-]+)`", row)] == [str(r) for r in RevocationReason]
