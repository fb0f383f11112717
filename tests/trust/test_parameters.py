"""Parameters of a topic's keys: good ones survive JSON, bad ones are refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealcast.errors import ParameterRejected
from sealcast.primitives.p256 import Hash
from sealcast.trust.realm.parameters import BOUNDS, KeyParameters, TokenHash


def test_defaults_are_the_strongest_key_and_what_the_spine_did() -> None:
    made = KeyParameters()
    assert (made.algorithm, made.key_bits, made.token_hash) == ("AES-GCM", 256, "sha-256")
    assert made.max_skew_us == 300 * 1_000_000
    assert made.key_bits == 256


@pytest.mark.parametrize("bits", [128, 192, 256])
@pytest.mark.parametrize("hash", ["sha-256", "sha-384", "sha-512"])
def test_every_size_and_hash_of_the_paper(bits: int, hash: str) -> None:
    """SHA-1, the paper's default, is gone."""
    made = KeyParameters.parse({"key_bits": bits, "token_hash": hash})
    assert (made.key_bits, made.token_hash) == (bits, hash)
    assert KeyParameters.parse(json.loads(json.dumps(made.to_json()))) == made


def test_numbers_may_be_text_as_a_command_line_has_it() -> None:
    assert KeyParameters.parse({"key_bits": "192", "grace_s": "0"}) == KeyParameters(key_bits=192, grace_s=0)


def test_hashes_have_the_names_that_signatures_use() -> None:
    assert [str(h) for h in TokenHash] == [str(h) for h in Hash]
    assert KeyParameters(token_hash=TokenHash.SHA512).to_json()["token_hash"] == "sha-512"
    assert type(KeyParameters(token_hash=TokenHash.SHA512).token_hash) is str


REFUSED: list[tuple[str, Any, str]] = [
    ("algorithm", "AES-CBC", "is AES-GCM, not AES-CBC"),
    ("algorithm", "DES", "is AES-GCM, not DES"),
    ("algorithm", "aes-gcm", "is AES-GCM, not aes-gcm"),
    ("algorithm", None, "is AES-GCM, not None"),
    ("key_bits", 64, "is one of 128, 192, 256, not 64"),
    ("key_bits", 0, "not 0"),
    ("key_bits", "a lot", "not a lot"),
    ("key_bits", 256.0, "not 256.0"),
    ("key_bits", True, "not True"),
    ("token_hash", "sha-1", "is one of sha-256, sha-384, sha-512, not sha-1"),
    ("token_hash", "md5", "not md5"),
    ("token_hash", 256, "not 256"),
    ("key_lifetime_s", 59, "is 60 to 316224000 seconds, not 59"),
    ("key_lifetime_s", -1, "not -1"),
    ("messages_per_key", 0, "is 1 to 4294967296 messages, not 0"),
    ("messages_per_key", 2**32 + 1, "not 4294967297"),
    ("token_lifetime_s", 0, "not 0"),
    ("token_lifetime_s", "1e9", "not 1e9"),
    ("grace_s", -1, "not -1"),
    ("grace_s", None, "not None"),
    ("max_skew_s", 3601, "is 0 to 3600 seconds, not 3601"),
    ("stale_after_s", 0, "not 0"),
    ("stale_after_s", "9" * 5000, "is 1 to 31622400 seconds, not 999"),
]


@pytest.mark.parametrize(("name", "value", "words"), REFUSED, ids=lambda v: str(v)[:20])
def test_bad_ones_are_refused_by_name(name: str, value: Any, words: str) -> None:
    with pytest.raises(ParameterRejected) as refusal:
        KeyParameters.parse({name: value})
    error = refusal.value
    assert error.parameter == name
    assert error.message.startswith(f"parameter {name} ") and words in error.message
    assert len(error.message) < 200
    assert error.hint is not None and name in error.hint
    assert error.as_json() == {
        "error": "parameter",
        "message": error.message,
        "hint": error.hint,
        "parameter": name,
    }


def test_unknown_ones_get_the_nearest_name() -> None:
    with pytest.raises(ParameterRejected) as refusal:
        KeyParameters.parse({"key_size": 128})
    assert (refusal.value.parameter, refusal.value.hint) == ("key_size", "did you mean key_bits?")
    with pytest.raises(ParameterRejected) as refusal:
        KeyParameters.parse({"padding": "PKCS7"})
    assert refusal.value.parameter == "padding"


@pytest.mark.parametrize(
    ("given_", "name"),
    [
        ({"grace_s": 600, "key_lifetime_s": 600}, "grace_s"),
        ({"max_skew_s": 300, "stale_after_s": 300}, "max_skew_s"),
    ],
)
def test_ones_that_contradict_each_other(given_: dict[str, int], name: str) -> None:
    with pytest.raises(ParameterRejected) as refusal:
        KeyParameters.parse(given_)
    assert refusal.value.parameter == name


def test_no_other_way_to_make_one() -> None:
    with pytest.raises(ParameterRejected, match="key_bits"):
        KeyParameters(key_bits=512)
    with pytest.raises(ParameterRejected, match="an object"):
        KeyParameters.parse(["key_bits"])  # type: ignore[arg-type]


@given(
    st.dictionaries(
        st.sampled_from([*BOUNDS, "algorithm", "key_bits", "token_hash"]),
        st.one_of(st.integers(), st.text(), st.none(), st.booleans(), st.floats(), st.sampled_from([128, "sha-512"])),
    )
)
def test_whatever_is_given_is_taken_or_refused_by_a_name_that_was_given(given_: dict[str, Any]) -> None:
    try:
        made = KeyParameters.parse(given_)
    except ParameterRejected as error:
        # One that contradicts another is named, whichever of the two was given.
        other = {"grace_s": "key_lifetime_s", "max_skew_s": "stale_after_s"}.get(error.parameter)
        assert error.parameter in given_ or other in given_
    else:
        assert KeyParameters.parse(made.to_json()) == made
