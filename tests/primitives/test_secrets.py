"""A secret does not leave by accident: not by pickle, copy, print, log or comparison."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle

import pytest

from sealcast.errors import Misuse
from sealcast.primitives.aead import KeyRing, SealingKey
from sealcast.primitives.hpke import KemKey
from sealcast.primitives.hybrid import HybridKey
from sealcast.primitives.secrets import Secret
from sealcast.primitives.sign import SigningKey

CANARY = b"canary-canary-canary-canary-1234"


def handles() -> list[object]:
    secret = Secret(CANARY)
    key = SealingKey(secret, b"aad")
    return [secret, key, KeyRing([key]), SigningKey(secret), KemKey(secret), HybridKey(secret)]


@pytest.mark.parametrize("handle", handles(), ids=lambda h: type(h).__name__)
@pytest.mark.parametrize(
    "escape",
    [
        *(lambda h, p=p: pickle.dumps(h, protocol=p) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
        copy.copy,
        copy.deepcopy,
        lambda h: pickle.dumps({"nested": [h]}),
    ],
)
def test_refuses_to_be_serialised_or_copied(handle: object, escape: object) -> None:
    with pytest.raises(Misuse, match="cannot be pickled or copied"):
        escape(handle)  # type: ignore[operator]


def test_cloudpickle_does_not_get_it_either() -> None:
    from pyspark import cloudpickle

    secret = Secret(CANARY)
    with pytest.raises(Misuse):
        cloudpickle.dumps(lambda: secret)


@pytest.mark.parametrize("handle", handles(), ids=lambda h: type(h).__name__)
def test_is_never_shown(handle: object, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("test").warning("%s %r %s", handle, handle, [handle])
    shown = f"{handle} {handle!r} {handle!s} {[handle]} {handle:>60}" if isinstance(handle, Secret) else f"{handle!r}"
    for text in (shown, str(handle), caplog.text):
        assert CANARY.decode() not in text
        assert CANARY.hex() not in text


def test_says_only_how_long_it_is() -> None:
    assert repr(Secret(CANARY)) == str(Secret(CANARY)) == f"{Secret(CANARY):x}" == "<secret 32 bytes>"


@pytest.mark.parametrize("leak", [bytes, list, iter, hash, len, json.dumps, lambda s: s[0], lambda s: {s: 1}, vars])
def test_has_no_other_way_out(leak: object) -> None:
    with pytest.raises(TypeError):
        leak(Secret(CANARY))  # type: ignore[operator]


def test_a_dataclass_that_holds_one_cannot_spill_it() -> None:
    @dataclasses.dataclass
    class Holder:
        key: Secret

    assert CANARY.decode() not in repr(Holder(Secret(CANARY)))
    with pytest.raises(Misuse):
        dataclasses.asdict(Holder(Secret(CANARY)))


def test_equality_is_by_value_and_between_secrets_only() -> None:
    assert Secret(CANARY) == Secret(bytearray(CANARY))
    assert Secret(CANARY) != Secret(CANARY[:-1])
    assert Secret(CANARY) != CANARY
    assert Secret.random() != Secret.random()


@pytest.mark.parametrize("nothing", [b"", "text", 32, None])
def test_is_made_of_bytes_and_not_of_nothing(nothing: object) -> None:
    with pytest.raises(Misuse):
        Secret(nothing)  # type: ignore[arg-type]


def test_logging_a_secret_says_only_its_size(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("any").warning("key %s and %r in %s", Secret(CANARY), Secret(CANARY), {"k": Secret(CANARY)})
    assert "<secret 32 bytes>" in caplog.text
    assert CANARY.decode() not in caplog.text
    assert CANARY.hex() not in caplog.text
