"""publish: Event -> Sealed. A batch of events becomes one frame: hashed into a tree, signed once, sealed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sealcast.model.schema import Value
from sealcast.primitives import merkle
from sealcast.primitives.aead import DEFAULT_KEY_BITS
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.sign import SigningKey
from sealcast.trust.keys import frames as keys
from sealcast.wire import frame
from sealcast.wire.records import RecordCodec


class FrameSealer(Unpicklable):
    """One start of one publisher on one topic. It numbers its events; the numbers begin anew with each boot.

    A fork leaves two processes with one sealer and the same numbers, under which two events would be sealed. So a
    process that did not draw the boot draws another one.
    """

    def __init__(
        self,
        codec: RecordCodec,
        topic_id: bytes,
        epoch: int,
        publisher: str,
        pair: Secret,
        signer: SigningKey,
        boot: bytes | None = None,
        key_bits: int = DEFAULT_KEY_BITS,
        *,
        token: bytes = b"",
    ) -> None:
        self._codec = codec
        self._topic_id = topic_id
        self._epoch = epoch
        self._publisher = publisher
        self._signer = signer
        self._pair, self._key_bits = pair, key_bits
        self._begin(boot if boot is not None else os.urandom(frame.BOOT_BYTES))
        #: That it may publish; exchanged for a newer one while it goes on.
        self.token = token

    def _begin(self, boot: bytes) -> None:
        self._process, self._boot, self._sequence = os.getpid(), boot, 0
        aad = keys.associated_data(self._topic_id, self._epoch)
        self._key = keys.frame_key(self._pair, boot, aad, self._key_bits)

    def seal(
        self,
        values: Sequence[Mapping[str, Value]],
        payloads: Sequence[bytes],
        content_types: Sequence[str],
        time_us: int,
    ) -> bytes:
        """The frame of these events: parsed values, absent ones as NULL (`Schema.parse` makes them)."""
        return self.seal_messages(self._codec.encode(values, payloads, content_types), time_us)

    def seal_messages(self, messages: Sequence[bytes], time_us: int, readers: str = "", trace: bytes = b"") -> bytes:
        """The frame of events that are encoded already; with a predicate over who may open them, and the context of a
        trace, if there are any."""
        if os.getpid() != self._process:
            self._begin(os.urandom(frame.BOOT_BYTES))
        header = frame.Header(
            topic=self._topic_id,
            publisher=self._publisher,
            boot=self._boot,
            sequence=self._sequence,
            count=len(messages),
            time=time_us,
            schema=self._codec.schema.digest,
            epoch=self._epoch,
            root=merkle.root(merkle.build(merkle.hash_messages(messages)), len(messages)),
            token=frame.token_digest(self.token),
        )
        body = frame.encode_body(messages, readers, trace)
        # Numbers are spent before anything is sealed under them: a failure further on leaves a gap, never a repeat.
        self._sequence += len(messages)
        signed = frame.encode_signed(header, self._signer.sign(frame.to_be_signed(header)))
        key = self._key
        aad = frame.body_aad(signed, key.commitment, key.key_bits)
        sealed = key.seal(frame.body_nonce(header), body, aad)
        return frame.encode(signed, key.commitment, sealed, key.key_bits, token=self.token)
