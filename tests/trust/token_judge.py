"""A case of the token tables put before the gate: None when it is taken, the reason when it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sealcast.errors import TokenRejected
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.parameters import KeyParameters
from sealcast.trust.tokens.token import TokenGate
from tests.trust import token_world as world


def topic_of(changed: Mapping[str, Any]) -> Any:
    fields = dict(changed)
    if "parameters" in fields:
        fields["parameters"] = KeyParameters.parse(fields["parameters"])
    if "epoch_starts" in fields:
        fields["epoch_starts"] = tuple(fields["epoch_starts"])
    return world.topic(**fields)


def verify(case: Mapping[str, Any], gate: TokenGate | None = None) -> Any:
    revoked = world.Revocations(1, {int(serial) for serial in case.get("revoked", ())})
    return (gate or world.gate(revoked)).verify(
        case["token"],
        topic_of(case.get("topic", {})),
        case.get("at_us", world.NOW),
        Right(case.get("need", "publish")),
        case.get("holder_key", world.frame_key("alice")),
        holder=case.get("holder", "alice"),
    )


def judged(case: Mapping[str, Any]) -> str | None:
    try:
        verify(case)
    except TokenRejected as error:
        assert error.hint, "a refusal says what to do"
        return str(error.reason)
    return None
