"""Writes `attribute.json` from fixed seeds: `python -m tests.vectors.make_attribute` from the repository's root.

Everything that is drawn comes from a stream, so that both pairing libraries make the same bytes, and always will.
`tests.protections.attribute.test_by_the_book` opens such events without our code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sealcast.primitives.pairing import Pairing, best
from sealcast.primitives.secrets import Secret
from sealcast.protections.attribute.scheme import (
    AttributeSealer,
    MasterSecret,
    OutgoingEvent,
    PlacedLabel,
    Profile,
    SealOptions,
    TagKind,
)

HERE = Path(__file__).parent
EPOCH = 3
KINDS = tuple((profile, tags) for profile in Profile for tags in TagKind)
EVENT: dict[str, list[bytes | None]] = {"heat": [b"root", b"1", None], "ward": [b"root", b"0"]}


def stream(seed: str) -> Callable[[int], bytes]:
    """Bytes that look random and are the same every time."""
    drawn = 0

    def draw(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"attribute vectors {seed} {drawn}".encode()).digest(size)

    return draw


@contextmanager
def drawn_from(seed: str) -> Iterator[None]:
    """Whatever asks the system for random bytes gets them from the stream."""
    with ExitStack() as stack:
        source = stream(seed)
        for place in ("os.urandom", "random._urandom"):
            stack.enter_context(patch(place, source))
        yield


def made(profile: Profile, tags: TagKind, pairing: Pairing) -> dict[str, Any]:
    """One topic: its parameters, a publisher's and a subscription's key, three events, a token and a request."""
    seed = Secret(hashlib.sha256(f"attribute vectors {profile}{tags}".encode()).digest())
    master = MasterSecret(profile, tags, seed, pairing)
    parameters = master.public()
    with drawn_from(f"{profile}{tags}"):
        publisher = master.publisher_key(EPOCH, {"heat": [b"root"], "ward": [b"0"]})
        subscription = master.subscription_key(
            EPOCH, {"heat": [PlacedLabel(1, b"1")], "ward": [PlacedLabel(0, b"root"), PlacedLabel(1, b"1")]}
        )
        (alone,) = AttributeSealer(parameters, publisher).seal([OutgoingEvent(EVENT, b"alone")])
        options = SealOptions(reuse=1, session=True)
        framed = AttributeSealer(parameters, publisher, options).seal(
            [OutgoingEvent(EVENT, b"first"), OutgoingEvent(EVENT, b"second")]
        )
        request, hidden = master.connection_request(EPOCH, "heat", [b"root", b"1"], 3)
    (token,) = master.tokens(EPOCH, {"heat": [b"1"]})
    return {
        "profile": str(profile),
        "tags": str(tags),
        "master": master.to_bytes().hex(),
        "parameters_sha256": hashlib.sha256(parameters.to_bytes()).hexdigest(),
        "publisher_key": publisher.to_bytes().hex(),
        "subscription_key": subscription.to_bytes().hex(),
        "events": {
            payload: sealed.hex()
            for payload, sealed in zip(("alone", "first", "second"), [alone, *framed], strict=True)
        },
        "token": token.token.hex(),
        "request": request.to_bytes().hex(),
        "connection_key": master.connection_key(EPOCH, "heat", b"root").to_bytes().hex(),
        "connection": hidden.reveal().hex(),
    }


def main() -> None:
    whole = {"epoch": EPOCH, "topics": [made(profile, tags, best()) for profile, tags in KINDS]}
    (HERE / "attribute.json").write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
