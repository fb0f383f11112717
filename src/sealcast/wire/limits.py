"""Every length on the wire is bounded by a name here; what exceeds one is refused before it is read further."""

from __future__ import annotations

from typing import Final

from sealcast.model.event import MAX_PAYLOAD_BYTES
from sealcast.model.moments import LAST
from sealcast.model.protection import Searchable

# --- frames -----------------------------------------------------------------------------------

MAX_FRAME_BYTES: Final = 16 << 20
MAX_EVENTS_PER_FRAME: Final = 16_384
#: The signed header with its signature.
MAX_SIGNED_BYTES: Final = 1024
#: The body opened; sealing adds a tag and a few bytes of envelope.
MAX_BODY_BYTES: Final = MAX_FRAME_BYTES - 4096
MAX_PUBLISHER_BYTES: Final = 256
#: Sequence numbers and times stay below what a signed 64-bit integer holds.
MAX_SEQUENCE: Final = 2**63 - 1 - MAX_EVENTS_PER_FRAME
MAX_TIME_MICROS: Final = LAST
MAX_EPOCH: Final = 2**32 - 1

# --- messages ---------------------------------------------------------------------------------

SALT_BYTES: Final = 16
#: A whole message: twice the largest payload, so half is left for attributes.
MAX_MESSAGE_BYTES: Final = 2 * MAX_PAYLOAD_BYTES

# --- tokens -----------------------------------------------------------------------------------

#: A whole token, its header and signature included.
MAX_TOKEN_BYTES: Final = 2048
#: Of a predicate over who may open the events of a frame.
MAX_READERS_BYTES: Final = 4_096
#: A topic template, in UTF-8.
MAX_TEMPLATE_BYTES: Final = 1024

# --- filter posts -----------------------------------------------------------------------------

MAX_POST_BYTES: Final = 4 << 20
MAX_POST_FILTERS: Final = 1_024
#: Of one conjunction.
MAX_FILTER_SLOTS: Final = 128
MAX_FILTER_TOKENS: Final = 8_192
#: Of all filters of a post: each takes two powers at a broker, some half a second for all of them on the curve.
MAX_POST_TOKENS: Final = 8_192
#: Names of a path: as many as there are layers.
MAX_PATH_HOPS: Final = 16
MAX_POST_NUMBER: Final = 2**63 - 1
#: What a broker states to have taken from the one above it.
MAX_STATEMENT_BYTES: Final = 4_096

# --- CBOR -------------------------------------------------------------------------------------

#: Nesting of arrays, maps and tags. Ours need four levels.
MAX_CBOR_DEPTH: Final = 8
#: Items in one document, counted whether or not they nest: bounds what a small input can make us allocate.
MAX_CBOR_ITEMS: Final = 1 << 20
#: Items of a signed header or a sealed body around its bytes. They are read before anything is verified.
MAX_COSE_ITEMS: Final = 16

# --- sealed pieces ----------------------------------------------------------------------------

MAX_PIECE_BYTES: Final = 1 << 30
MAX_PIECE_EVENTS: Final = 1 << 22
MAX_PIECE_FRAMES: Final = 1 << 17
MAX_PIECE_REJECTIONS: Final = 1 << 17
MAX_DETAIL_BYTES: Final = 1024
MAX_COUNTS: Final = 64
MAX_PIECE_DELIVERIES: Final = 1 << 30
MAX_PIECE_TILES: Final = 1 << 16
MAX_TILE_SLOTS: Final = 16
#: A subscriber's part of a table, sealed: 5,875 labels at the most.
MAX_TABLE_PART_BYTES: Final = 1 << 18
KEY_ID_BYTES: Final = 16
TABLE_NAME_BYTES: Final = 12

# --- the layered protection -------------------------------------------------------------------

#: Changes of a topic's overlay that move somebody.
MAX_GENERATION: Final = 2**32 - 1
#: An element of a group: 3072 bits take 384 bytes.
MAX_ELEMENT_BYTES: Final = 512
#: Tokens of one entry, and entries of one event on one link.
MAX_TOKENS: Final = 8_192
MAX_ENTRIES: Final = 65_536
#: All entries of one event on one link.
MAX_ENTRIES_BYTES: Final = 1 << 25
MAX_HOP_RECIPIENTS: Final = 1 << 20
MAX_HOP_ROWS: Final = 1 << 24

# --- filters that brokers read ----------------------------------------------------------------

#: The smallest bucket of a filter's text, and the largest: 16,384 code points of four bytes, and their length.
MIN_TEXT_BYTES: Final = 128
MAX_TEXT_BYTES: Final = 65_664
#: A sealed text, and the same in base64, as the registry keeps it.
MAX_SEALED_TEXT_BYTES: Final = MAX_TEXT_BYTES + 163
MAX_SEALED_TEXT_CHARACTERS: Final = 12 + -(-4 * MAX_SEALED_TEXT_BYTES // 3)

# --- the searchable protection ----------------------------------------------------------------

#: Of one sealed filter, as many as `filters.labels` makes of one filter.
MAX_SEALED_CONJUNCTIONS: Final = 64
MAX_SEALED_LABELS: Final = 4_096
#: With a few bytes for the counts: 4,096 labels of 86 bytes.
MAX_SEALED_FILTER_BYTES: Final = 384 << 10
#: The same in base64, as the registry keeps it.
MAX_SEALED_FILTER_CHARACTERS: Final = Searchable.max_filter_characters
#: Of one event.
MAX_TRAPDOORS: Final = 8_192

# --- the attribute protection -----------------------------------------------------------------

#: Attributes of a header, one tree of peers each: an attribute of the schema may take two.
MAX_ATTRIBUTE_TREES: Final = 255
#: Of such a tree's name.
MAX_TREE_NAME_BYTES: Final = 255
#: Labels of one attribute of an event. Beyond half the length of the Waters hash, some other label's point is likely a
#: combination of theirs, and whoever holds it could open the event.
MAX_ATTRIBUTE_POSITIONS: Final = 128
MAX_ATTRIBUTE_HEADER_BYTES: Final = 1 << 20
#: A session certificate under the header's key.
MAX_ATTRIBUTE_SESSION_BYTES: Final = (1 << 16) - 1
#: A key of a subscription or a publisher.
MAX_ATTRIBUTE_KEY_BYTES: Final = 4 << 20
#: Labels of a key, all attributes together.
MAX_ATTRIBUTE_KEY_LABELS: Final = 4_096
#: A label as it stands in a key: an attribute's name and a text of the greatest length.
MAX_ATTRIBUTE_LABEL_BYTES: Final = 1 << 17
#: The public parameters of a topic.
MAX_ATTRIBUTE_PARAMETERS_BYTES: Final = 1 << 15
#: A connection request.
MAX_CONNECTION_REQUEST_BYTES: Final = 8_192

# --- messages between peers -------------------------------------------------------------------

#: A sealed event with what proves its publisher: twice the largest message, as its header has many labels.
MAX_PEER_EVENT_BYTES: Final = 2 * MAX_MESSAGE_BYTES
MAX_PEER_MESSAGE_BYTES: Final = MAX_PEER_EVENT_BYTES + 4096
#: A connection request: a point, a slot for each of 129 positions, a signature.
MAX_PEER_REQUEST_BYTES: Final = 16 << 10
MAX_PEER_ADVERTISEMENT_BYTES: Final = 16 << 10
#: What a parent routes by: a point of G2 takes 96 bytes, a key 32.
MAX_ROUTING_TOKEN_BYTES: Final = 192
MAX_PEER_SEAT: Final = 65_535
#: A search goes up a tree and down it again.
MAX_PEER_HOPS: Final = 255
MAX_PEER_DEPTH: Final = 65_535
#: A week: who was away for longer is away for a week.
MAX_PEER_MILLISECONDS: Final = 7 * 24 * 3600 * 1000
#: Roots whose pulses a seat remembers.
MAX_PEER_ROOTS: Final = 8
MAX_INVENTORY_EVENTS: Final = 4_096
MAX_PULSE: Final = 2**63 - 1
#: A record of a peer's own log, and the entries in it.
MAX_PEER_LOG_BYTES: Final = 4 << 20
MAX_PEER_LOG_ENTRIES: Final = 2_048

# --- control topics ---------------------------------------------------------------------------

#: A request or an answer: a bucket of a mebibyte at most, sealed, and what stands around it.
MAX_ENVELOPE_BYTES: Final = (1 << 20) + 1_200
