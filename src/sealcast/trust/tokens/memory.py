"""Which tokens were found to be signed, so that none is verified twice: by their SHA-256, and bounded."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from sealcast.primitives.p256 import P256VerifyKey
from sealcast.trust.tokens.claims import Token, parse
from sealcast.wire.limits import MAX_TOKEN_BYTES

#: Tokens remembered at once, good and bad apart: strangers who send bad ones push no good ones out.
REMEMBERED: Final = 16_384
REMEMBERED_BAD: Final = 4_096


class VerifiedTokens:
    """Which tokens were signed by the key that they name, by their SHA-256. Bounded; the least recently asked go."""

    __slots__ = ("_bad", "_good", "remembered", "remembered_bad", "verifications")

    def __init__(self, remembered: int = REMEMBERED, remembered_bad: int = REMEMBERED_BAD) -> None:
        self._good: OrderedDict[bytes, Token] = OrderedDict()
        self._bad: OrderedDict[bytes, None] = OrderedDict()
        self.remembered = remembered
        self.remembered_bad = remembered_bad
        #: Signatures verified so far: for metrics, and for the tests that count them.
        self.verifications = 0

    def __len__(self) -> int:
        return len(self._good) + len(self._bad)

    def token(self, data: bytes) -> Token:
        """The token that these bytes are, read once."""
        # What is too long is refused before it is hashed.
        found = self._good.get(hashlib.sha256(data).digest()) if len(data) <= MAX_TOKEN_BYTES else None
        return parse(data) if found is None else found

    def signed(self, token: Token, identity_key: bytes) -> bool:
        """Whether that key signed the token. The key must be the one of the certificate that the token names."""
        if token.digest in self._good:
            self._good.move_to_end(token.digest)
            return True
        if token.digest in self._bad:
            self._bad.move_to_end(token.digest)
            return False
        self.verifications += 1
        good = P256VerifyKey(identity_key).verify(token.to_be_signed, token.signature, token.hash)
        if good:
            self._good[token.digest] = token
            if len(self._good) > self.remembered:
                self._good.popitem(last=False)
        else:
            self._bad[token.digest] = None
            if len(self._bad) > self.remembered_bad:
                self._bad.popitem(last=False)
        return good
