"""The administrator's handle before any act: what brokers and entities reach, and the authority and key centers."""

from __future__ import annotations

from sealcast.trust.certificates.authority import Authority
from sealcast.trust.handles import BrokerRealm, EntityRealm
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.issuing import Issuer
from sealcast.trust.layout import FIRST_CENTER


class Handle(BrokerRealm, EntityRealm):
    """One realm, with whatever secrets are at hand."""

    def center(self, name: str = FIRST_CENTER) -> CenterSecrets:
        """A key center's secrets."""
        return CenterSecrets.load(self.paths.center_key(name))

    def authority(self) -> Authority:
        """The realm's authority, as much of it as is here."""
        return Authority.load(self.paths.authority)

    def issuer(self) -> Issuer:
        """The key centers whose secrets are here, handing out keys and tokens."""
        return Issuer(self.paths)
