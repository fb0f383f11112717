"""RFC 8949, appendix A, whole: what is in our subset is read as another implementation reads it, and written back to
the same bytes; the rest is refused."""

from __future__ import annotations

from io import BytesIO

import cbor2
import pytest

from sealcast.errors import FrameRejected
from sealcast.wire import cbor


def _split(text: str) -> list[str]:
    return text.split()


TAKEN = _split("""
00 01 0a 17 1818 1819 1864 1903e8 1a000f4240 1b000000e8d4a51000 1bffffffffffffffff 3bffffffffffffffff 20 29 3863 3903e7
f4 f5 f6 40 4401020304 60 6161 6449455446 62225c 62c3bc 63e6b0b4 64f0908591 80 83010203 8301820203820405
98190102030405060708090a0b0c0d0e0f101112131415161718181819 a0 a201020304 a26161016162820203 826161a161626163
a56161614161626142616361436164614461656145
""")
#: With their tags allowed: bignums, times, an expected encoding, encoded CBOR and a URI.
TAGGED = _split("""
c249010000000000000000 c349010000000000000000 c074323031332d30332d32315432303a30343a30305a c11a514b67b0 d74401020304
d818456449455446 d82076687474703a2f2f7777772e6578616d706c652e636f6d
""")
#: Floats, simple values beyond true, false and null, and indefinite lengths.
REFUSED = _split("""
f90000 f98000 f93c00 fb3ff199999999999a f93e00 f97bff fa47c35000 fa7f7fffff fb7e37e43c8800759c f90001 f90400 f9c400
fbc010666666666666 f97c00 f97e00 f9fc00 fa7f800000 fa7fc00000 faff800000 fb7ff0000000000000 fb7ff8000000000000
fbfff0000000000000 f7 f0 f8ff c1fb41d452d9e8200000 5f42010243030405ff 7f657374726561646d696e67ff 9fff
9f018202039f0405ffff 9f01820203820405ff 83018202039f0405ff 83019f0203ff820405
9f0102030405060708090a0b0c0d0e0f101112131415161718181819ff bf61610161629f0203ffff 826161bf61626163ff
bf6346756ef563416d7421ff
""")
TAGS = frozenset({0, 1, 2, 3, 23, 24, 32})


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_in_the_subset(text: str) -> None:
    data = bytes.fromhex(text)
    value = cbor.decode(data)
    assert value == cbor2.loads(data) and type(value) is type(cbor2.loads(data))
    assert cbor.encode(value) == data
    for cut in range(len(data)):
        with pytest.raises(FrameRejected):
            cbor.decode(data[:cut])


@pytest.mark.parametrize("text", TAGGED)
def test_tags_that_a_caller_allows(text: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(FrameRejected, match="has no place here"):
        cbor.decode(data)
    value = cbor.decode(data, tags=TAGS)
    assert isinstance(value, cbor.TaggedValue) and cbor.encode(value) == data
    # The number and what follows it, as the other implementation sees them.
    head = 1 if data[0] & 31 < 24 else 2
    assert value.number == (data[0] & 31 if head == 1 else data[1])
    assert value.value == cbor2.CBORDecoder(BytesIO(data[head:])).decode()


@pytest.mark.parametrize("text", REFUSED)
def test_the_rest_is_refused(text: str) -> None:
    with pytest.raises(FrameRejected):
        cbor.decode(bytes.fromhex(text), tags=TAGS)


def test_that_is_all_of_the_appendix() -> None:
    assert len({*TAKEN, *TAGGED, *REFUSED}) == len(TAKEN) + len(TAGGED) + len(REFUSED) == 81
