"""Who asks: the holder of the certificate that the connection was made with, if it counts by the newest registry.

OpenSSL has verified in the handshake that the other end has the certificate's key, and the chain to the realm's root.
Every request is judged again, as everywhere in the realm (`certificates.Trust`): our profile, its time, revocation, and
the name. So a connection that was made yesterday ends with the right to make it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sealcast.errors import CertificateRejected
from sealcast.gateway.newest import NewestRegistry
from sealcast.gateway.problems import Refusal
from sealcast.trust.certificates.roles import Role


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody of this realm."""

    name: str
    roles: frozenset[Role]

    @property
    def is_broker(self) -> bool:
        return Role.BROKER in self.roles

    @property
    def serves(self) -> bool:
        """Whether it answers others: key centers, brokers and discovery nodes have control topics of their own."""
        return not self.roles.isdisjoint({Role.BROKER, Role.KEY_CENTER, Role.DISCOVERY})


class Callers:
    """Judges certificates."""

    def __init__(self, newest: NewestRegistry, clock: Callable[[], int]) -> None:
        self._newest, self._clock = newest, clock

    def judge(self, der: bytes | None) -> Caller:
        """Whose certificate it is; Refusal (401) when there is none, or it does not count now."""
        if not der:
            raise Refusal(
                401,
                "certificate",
                "this needs a certificate of the realm, and the connection was made without one",
                hint="connect with the entity's own key and certificate (mutual TLS)",
                reason="missing",
            )
        state, trust = self._newest.seen
        try:
            found = trust.verify(der, self._clock(), state.revoked)
        except CertificateRejected as error:
            raise Refusal(401, error.code, error.message, hint=error.hint, reason=str(error.reason)) from None
        entity = state.entities.get(found.name)
        if entity is None or entity.revoked:
            raise Refusal(401, "certificate", f"{found.name!r} is nobody of this realm any more", reason="revoked")
        return Caller(found.name, entity.roles & found.roles)
