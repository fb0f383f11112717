"""What one subscriber holds: keys that it was given, parts of tables, and all that it derives from them.

Bounded: what was not used for longest goes. Nothing is lost with it but time: what is missing can be asked for again
(`missing`), and whatever is derived can be derived anew.

How a key is come by, in this order:

    its pair key        from the start
    held                it was given, or derived before
    of a table          derived from the subscriber's part of that table
    under another       a link of the piece: it grows out of a key that is held, or is hidden under one
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sealcast.errors import KeyMissing
from sealcast.primitives import labels
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.protections.endpoint import keys
from sealcast.protections.endpoint.key_requests import KeyReply
from sealcast.protections.endpoint.tables import LINK, TablePart, part_bytes
from sealcast.protections.port import DEFAULT_KEY_MEMORY, Measured
from sealcast.wire.limits import TABLE_NAME_BYTES
from sealcast.wire.sealed import PAIR, TABLE, SealedPiece

#: What a key takes in this process, with its name and its place in the order; and a part of a table beside its labels.
KEY_BYTES: Final = 320
PART_BYTES: Final = 512
#: Links followed from a key: a tree of tiles is far less deep, and what a hostile piece can make us follow is bounded.
MAX_LINKS: Final = 4_096
MAX_DEPTH: Final = 128


class Keyring(Unpicklable):
    """The keys of one subscriber of one topic and epoch."""

    def __init__(self, slot: int, pair: Secret, aad: bytes, key_bits: int, most: int = DEFAULT_KEY_MEMORY) -> None:
        self._slot, self._pair, self._aad, self._key_bits = slot, pair, aad, key_bits
        self._pair_id = keys.pair_id(slot)
        self._most = most
        #: By key id, or by the name of a table, which is shorter.
        self._held: OrderedDict[bytes, bytes | TablePart] = OrderedDict()
        self._taken: SealedPiece | None = None
        self.measured = Measured()

    def __len__(self) -> int:
        return len(self._held)

    def secret(self, piece: SealedPiece, key: int) -> bytes:
        """The value of a key of a piece, or KeyMissing."""
        self._take(piece)
        found = self._find(piece, key, set(), MAX_DEPTH)
        if found is None:
            raise KeyMissing("this was sealed under a key that this subscriber does not hold")
        return found

    def forget(self, key_id: bytes) -> None:
        """A key that opened nothing, though it should have: whatever it came from, it is not asked again."""
        self._drop(key_id)
        self._drop(key_id[:TABLE_NAME_BYTES])
        self._taken = None

    def give(self, reply: KeyReply) -> None:
        """Take what was asked for."""
        for key_id, sealed in reply.keys:
            self._keep(key_id, self._opened(key_id, sealed), KEY_BYTES)
        for part in reply.tables:
            self._take_part(part.name, part.place, part.places, part.sealed)
        self.measured.asked += len(reply.keys) + len(reply.tables)

    @property
    def room(self) -> int:
        """How many keys there is room for; one at least."""
        return max(1, self._most // KEY_BYTES)

    @property
    def room_for_tables(self) -> bool:
        """Is it worth asking for a part of a table rather than for single keys of it?"""
        return self._most >= 4 * (PART_BYTES + part_bytes(0, 12))

    # --- inside -------------------------------------------------------------------------------------

    def _find(self, piece: SealedPiece, key: int, tried: set[int], depth: int) -> bytes | None:
        key_id, kind = piece.key_id(key), int(piece.key_kind[key])
        if kind == PAIR:
            return self._pair.reveal() if key_id == self._pair_id else None
        held = self._get(key_id)
        if isinstance(held, bytes):
            return held
        if kind == TABLE:
            part = self._get(key_id[:TABLE_NAME_BYTES])
            pattern = int.from_bytes(key_id[TABLE_NAME_BYTES:], "big")
            return part.key(pattern) if isinstance(part, TablePart) and part.covers(pattern) else None
        if key in tried or not depth or len(tried) >= MAX_LINKS:
            return None
        tried.add(key)
        for under, masked in piece.links_to(key):
            other = self._find(piece, under, tried, depth - 1)
            if other is not None:
                found = labels.grow(other, key_id) if masked is None else labels.unmask(other, key_id, LINK, masked)
                self._keep(key_id, found, KEY_BYTES)
                self.measured.derived += 1
                return found
        return None

    def _take(self, piece: SealedPiece) -> None:
        """What comes with a piece; all at once, when its first key is wanted."""
        if piece is self._taken:
            return
        for key, sealed in piece.handouts_for(self._slot):
            key_id = piece.key_id(key)
            if key_id not in self._held:
                self._keep(key_id, self._opened(key_id, sealed), KEY_BYTES)
                self.measured.given += 1
        for name, tile, sealed in piece.tables_for(self._slot):
            slots = piece.tile(tile)
            if name not in self._held and self._slot in slots:
                self._take_part(name, slots.index(self._slot), len(slots), sealed)
                self.measured.given += 1
        self._taken = piece

    def _opened(self, key_id: bytes, sealed: bytes) -> bytes:
        carrier = keys.handout_key(self._pair, key_id, self._aad, self._key_bits)
        return carrier.unwrap(keys.HANDOUT_NONCE, sealed).reveal()

    def _take_part(self, name: bytes, place: int, places: int, sealed: bytes) -> None:
        if PART_BYTES + len(sealed) > self._most // 2:
            return  # keys of the table are asked for one by one
        carrier = keys.table_key(self._pair, name, self._aad, self._key_bits)
        part = TablePart(place, places, carrier.unseal(keys.HANDOUT_NONCE, sealed))
        self._keep(name, part, PART_BYTES + part.nbytes)

    def _get(self, name: bytes) -> bytes | TablePart | None:
        found = self._held.get(name)
        if found is not None:
            self._held.move_to_end(name)
        return found

    def _keep(self, name: bytes, value: bytes | TablePart, size: int) -> None:
        self._drop(name)
        self._held[name] = value
        self.measured.held += 1
        self.measured.nbytes += size
        while self.measured.nbytes > self._most and len(self._held) > 1:
            self._drop(next(iter(self._held)))
            self.measured.let_go += 1

    def _drop(self, name: bytes) -> None:
        gone = self._held.pop(name, None)
        if gone is not None:
            self.measured.held -= 1
            self.measured.nbytes -= PART_BYTES + gone.nbytes if isinstance(gone, TablePart) else KEY_BYTES
