"""The administrator's handle before any act: what brokers and entities reach, and the authority and key centers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from sealcast.errors import NotFound
from sealcast.trust import homes
from sealcast.trust.certificates.authority import Authority
from sealcast.trust.certificates.roles import Role
from sealcast.trust.handles import BrokerRealm, EntityRealm, at_hand
from sealcast.trust.heads import Pin
from sealcast.trust.keys import administrator
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.keys.issuing import Issuer
from sealcast.trust.layout import FIRST_CENTER
from sealcast.trust.realm.authors import ADMINISTRATOR
from sealcast.trust.registry import now_us
from sealcast.trust.site import Member
from sealcast.trust.statements import Author

#: Whose keys may be in a home, those who ask most first.
_ROLES: Final = (Role.ENTITY, Role.BROKER, Role.KEY_CENTER, Role.DISCOVERY, Role.GATEWAY)


class Handle(BrokerRealm, EntityRealm):
    """One realm, with whatever secrets are at hand."""

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        clock: Callable[[], int] = now_us,
        keys: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        super().__init__(directory, clock=clock, keys=keys)
        if at_hand(self.paths.administrator_key):
            self.registry.hold(Pin.beside(self.paths.administrator_key, ADMINISTRATOR))

    def member(self, name: str | None = None) -> Member:
        """Whoever it is, of whatever role: the keys that are here say which."""
        if name is None:
            for role in _ROLES:
                with suppress(NotFound):
                    name = homes.joined(self.paths, role)[0]
                    break
        role = next((r for r in _ROLES if name and homes.key_file(self.paths, r, name).exists()), Role.ENTITY)
        if role is Role.KEY_CENTER and name is not None:
            path = self.paths.center_key(name)
            return Member(name, role, lambda: CenterSecrets.load(path).identity)
        return self._member(role, name)

    def author(self, name: str) -> Author | None:
        if name == ADMINISTRATOR:
            path = self.paths.administrator_key
            return administrator.load(path) if at_hand(path) else None
        return self.center(name).identity.author if at_hand(self.paths.center_key(name)) else super().author(name)

    def center(self, name: str = FIRST_CENTER) -> CenterSecrets:
        """A key center's secrets. The registry is held to what that center saw."""
        path = self.paths.center_key(name)
        secrets = CenterSecrets.load(path)
        self.registry.hold(Pin.beside(path, f"key center {name!r}"))
        return secrets

    def authority(self) -> Authority:
        """The realm's authority, as much of it as is here."""
        return Authority.load(self.paths.authority)

    def issuer(self) -> Issuer:
        """The key centers whose secrets are here, handing out keys and tokens."""
        return Issuer(self.paths)
