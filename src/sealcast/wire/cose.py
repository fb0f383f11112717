"""The two COSE messages (RFC 9052) that a frame is made of: one thing signed, one thing sealed.

    COSE_Sign1     18([protected {1: -19}, {}, payload, signature])          Ed25519 (RFC 9864)
    COSE_Encrypt0  16([protected {1: 3, -65537: commitment}, {5: nonce}, ciphertext])      A256GCM (or A192GCM, A128GCM)

The algorithm is not negotiated: the topic's owner chose the key size, and the key commitment tells it too. Each message
has exactly one protected header and one unprotected header that are accepted, byte for byte. Ed25519's number is the
fully specified -19 and not EdDSA's -8, which RFC 9864 deprecates because it leaves the curve to the key. Label -65537
is of the range for private use: the key commitment of `primitives.aead`.

Nothing here signs or seals. It says which bytes are to be signed and which are associated data; keys stay elsewhere.
"""

from __future__ import annotations

from typing import Final

from sealcast.model.dataclass import dataclass
from sealcast.primitives.aead import COMMITMENT_BYTES, DEFAULT_KEY_BITS, NONCE_BYTES, TAG_BYTES
from sealcast.primitives.sign import SIGNATURE_BYTES
from sealcast.wire import cbor
from sealcast.wire.limits import MAX_COSE_ITEMS, MAX_FRAME_BYTES, MAX_SIGNED_BYTES

TAG_ENCRYPT0: Final = 16
TAG_SIGN1: Final = 18

LABEL_ALGORITHM: Final = 1
LABEL_IV: Final = 5
LABEL_COMMITMENT: Final = -65537

ED25519: Final = -19
#: A128GCM, A192GCM, A256GCM, by the size of their keys.
AES_GCM: Final = {128: 1, 192: 2, 256: 3}
_KEY_BITS: Final = {number: bits for bits, number in AES_GCM.items()}

SIGN1_PROTECTED: Final = cbor.encode({LABEL_ALGORITHM: ED25519})


@dataclass(frozen=True, slots=True)
class Sign1:
    """A signed payload, taken apart and not yet verified."""

    payload: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Encrypt0:
    """A sealed body, taken apart and not yet opened."""

    commitment: bytes
    nonce: bytes
    ciphertext: bytes
    key_bits: int = DEFAULT_KEY_BITS


def sig_structure(protected: bytes, external_aad: bytes, payload: bytes) -> bytes:
    """What a signature is over: RFC 9052, section 4.4."""
    return cbor.encode(["Signature1", protected, external_aad, payload])


def enc_structure(protected: bytes, external_aad: bytes) -> bytes:
    """The associated data of a sealed body: RFC 9052, section 5.3."""
    return cbor.encode(["Encrypt0", protected, external_aad])


def encrypt0_protected(commitment: bytes, key_bits: int = DEFAULT_KEY_BITS) -> bytes:
    """The protected header of a sealed body: algorithm and key commitment."""
    return cbor.encode({LABEL_ALGORITHM: AES_GCM[key_bits], LABEL_COMMITMENT: commitment})


def encode_sign1(payload: bytes, signature: bytes) -> bytes:
    """The COSE_Sign1 of `payload` with a signature made over `sig_structure`."""
    return cbor.encode(cbor.TaggedValue(TAG_SIGN1, [SIGN1_PROTECTED, {}, payload, signature]))


def parse_sign1(data: bytes | memoryview) -> Sign1:
    """Take a COSE_Sign1 apart; FrameRejected when it is not exactly ours."""
    parts = _parts(data, TAG_SIGN1, 4, MAX_SIGNED_BYTES)
    protected, unprotected, payload, signature = parts
    if protected != SIGN1_PROTECTED or unprotected != {}:
        raise cbor.refused("a signed header says Ed25519 and nothing else")
    if not isinstance(payload, bytes) or not isinstance(signature, bytes) or len(signature) != SIGNATURE_BYTES:
        raise cbor.refused(f"a signed header carries a payload and a signature of {SIGNATURE_BYTES} bytes")
    return Sign1(payload, signature)


def encode_encrypt0(commitment: bytes, nonce: bytes, ciphertext: bytes, key_bits: int = DEFAULT_KEY_BITS) -> bytes:
    """The COSE_Encrypt0 of a body sealed with `enc_structure` as its associated data."""
    protected = encrypt0_protected(commitment, key_bits)
    return cbor.encode(cbor.TaggedValue(TAG_ENCRYPT0, [protected, {LABEL_IV: nonce}, ciphertext]))


def parse_encrypt0(data: bytes | memoryview) -> Encrypt0:
    """Take a COSE_Encrypt0 apart; FrameRejected when it is not exactly ours."""
    protected, unprotected, ciphertext = _parts(data, TAG_ENCRYPT0, 3, MAX_FRAME_BYTES)
    header = cbor.decode(protected, max_bytes=128, max_items=8) if isinstance(protected, bytes) else None
    if not isinstance(header, dict) or set(header) != {LABEL_ALGORITHM, LABEL_COMMITMENT}:
        raise cbor.refused("a sealed body's protected header names the algorithm and the key commitment, nothing else")
    commitment = header[LABEL_COMMITMENT]
    algorithm = header[LABEL_ALGORITHM]
    if not isinstance(algorithm, int) or isinstance(algorithm, bool) or algorithm not in _KEY_BITS:
        raise cbor.refused("a sealed body says A128GCM, A192GCM or A256GCM and nothing else")
    if not isinstance(commitment, bytes) or len(commitment) != COMMITMENT_BYTES:
        raise cbor.refused(f"a key commitment has {COMMITMENT_BYTES} bytes")
    if not isinstance(unprotected, dict) or set(unprotected) != {LABEL_IV}:
        raise cbor.refused("a sealed body's unprotected header is its nonce, nothing else")
    nonce = unprotected[LABEL_IV]
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise cbor.refused(f"a nonce has {NONCE_BYTES} bytes")
    if not isinstance(ciphertext, bytes) or len(ciphertext) <= TAG_BYTES:
        raise cbor.refused("a sealed body is longer than its tag")
    return Encrypt0(commitment, nonce, ciphertext, _KEY_BITS[algorithm])


def _parts(data: bytes | memoryview, tag: int, size: int, max_bytes: int) -> list[object]:
    message = cbor.decode(data, max_bytes=max_bytes, max_depth=4, max_items=MAX_COSE_ITEMS, tags=frozenset({tag}))
    if not isinstance(message, cbor.TaggedValue) or not isinstance(message.value, list) or len(message.value) != size:
        raise cbor.refused(f"COSE tag {tag} holds an array of {size}")
    return message.value
