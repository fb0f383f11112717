"""Messages of an earlier version of a topic's schema, read as those of the present one.

A later version only adds attributes after those that there are, and widens their domains (`model.evolution`). Neither
moves a cell of an earlier attribute. So a message is lifted by putting absent cells where the new attributes stand:

    0x00 | salt | bitmap | cells              | lengths | strings | content type | payload
    0x00 | salt | bitmap | cells | new: zeros | lengths | strings | content type | payload

What was signed and sealed is the message as it is. Lifted ones are looked at and never handed on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sealcast.model.schema import Schema
from sealcast.wire.layout import RECORD_AT, TRAILER_BYTES, MessageLayout

#: What no schema has a message of: whoever decodes it says so.
NO_MESSAGE: Final = b""


class Lift:
    """From one version of a schema to a later one."""

    __slots__ = ("_attributes", "_cells", "_cells_at", "_new_bitmap", "_old", "added")

    def __init__(self, before: Schema, after: Schema) -> None:
        old, new = MessageLayout(before), MessageLayout(after)
        self._old, self._attributes = old, len(before.attributes)
        self._cells_at = RECORD_AT + old.presence_bytes
        self._new_bitmap = bytes(new.presence_bytes - old.presence_bytes)
        #: How many bytes longer a lifted message is.
        self.added = new.fixed_bytes - old.fixed_bytes
        self._cells = bytes(self.added - len(self._new_bitmap))

    def __call__(self, message: bytes) -> bytes:
        """The message as one of the later version; `NO_MESSAGE` for what is none of the earlier."""
        if not self.added:
            return message
        end, at = self._old.fixed_bytes - TRAILER_BYTES, self._cells_at
        # Bits of attributes that the version does not have would become those of new ones.
        if len(message) < self._old.fixed_bytes or int.from_bytes(message[RECORD_AT:at], "little") >> self._attributes:
            return NO_MESSAGE
        return b"".join((message[:at], self._new_bitmap, message[at:end], self._cells, message[end:]))


def lifts(present: Schema, earlier: Iterable[Schema]) -> Mapping[bytes, Lift]:
    """By digest, as frames name their schema: what makes messages of each version ones of the present."""
    return {each.digest: Lift(each, present) for each in (*earlier, present)}
