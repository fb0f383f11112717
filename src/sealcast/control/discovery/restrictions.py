"""Who may find an advertisement: anyone with a certificate of the realm, or only who has the credentials it asks for.

    open
    name=alice,bob                          one of those names
    role=broker                             whoever the authority marked as a broker
    right=publish,subscribe                 whoever has one of these rights on the topic that is advertised
    name=desk-* & role=entity | name=ops    all conditions of one alternative; any of the alternatives

Conditions are on what a certificate says and the authority signed, never on what its holder says: `name` (a star at the
end stands for any ending), `role`, `serial` (decimal), `issuer` and `key` (hexadecimal: who issued it, and the identity
key that it certifies, which outlives renewals). `right` is what the realm has granted, at the moment of asking: a topic
need not be advertised again whenever someone may newly read it. Whoever advertised something may always find it.
Nothing empty means everyone: open is written out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sealcast.errors import Misuse
from sealcast.trust.certificates.certificate import Certificate, Role
from sealcast.trust.realm.changes import Right

OPEN: Final = "open"
NO_RIGHTS: Final[frozenset[Right]] = frozenset()
MAX_ALTERNATIVES: Final = 32
MAX_CONDITIONS: Final = 8
#: Values of one condition: a topic can name this many entities that may find it.
MAX_VALUES: Final = 1_024

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}\*?|\*", re.ASCII)
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,39}", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9a-f]{2}){16,64}", re.ASCII)


class CertificateField(StrEnum):
    """What of a certificate a condition is about."""

    NAME = "name"
    ROLE = "role"
    SERIAL = "serial"
    ISSUER = "issuer"
    KEY = "key"
    RIGHT = "right"


_VALUES: Final = {
    CertificateField.NAME: _NAME,
    CertificateField.ROLE: re.compile("|".join(map(re.escape, Role))),
    CertificateField.SERIAL: _NUMBER,
    CertificateField.ISSUER: _HEX,
    CertificateField.KEY: _HEX,
    CertificateField.RIGHT: re.compile("|".join(map(re.escape, Right))),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """One of these values."""

    credential: CertificateField
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.values) <= MAX_VALUES or len(set(self.values)) != len(self.values):
            raise Misuse(f"a condition on {self.credential} names 1 to {MAX_VALUES} values, each once")
        for value in self.values:
            if not _VALUES[self.credential].fullmatch(value):
                raise Misuse(f"{value[:80]!r} is no {self.credential} of a certificate")

    def holds(self, holder: Certificate, rights: frozenset[Right]) -> bool:
        match self.credential:
            case CertificateField.NAME:
                return any(_named(value, holder.name) for value in self.values)
            case CertificateField.ROLE:
                return not holder.roles.isdisjoint(map(Role, self.values))
            case CertificateField.SERIAL:
                return str(holder.serial) in self.values
            case CertificateField.ISSUER:
                return holder.issuer.hex() in self.values
            case CertificateField.KEY:
                return holder.identity_key.hex() in self.values
            case CertificateField.RIGHT:
                return not rights.isdisjoint(map(Right, self.values))

    def __str__(self) -> str:
        return f"{self.credential}={','.join(self.values)}"


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Alternatives of conditions; None is open."""

    alternatives: tuple[tuple[Condition, ...], ...] | None

    def __post_init__(self) -> None:
        if self.alternatives is None:
            return
        if not 0 < len(self.alternatives) <= MAX_ALTERNATIVES:
            raise Misuse(f"restrictions have 1 to {MAX_ALTERNATIVES} alternatives; for everyone, write {OPEN!r}")
        if not all(0 < len(conditions) <= MAX_CONDITIONS for conditions in self.alternatives):
            raise Misuse(f"an alternative has 1 to {MAX_CONDITIONS} conditions")

    @classmethod
    def parse(cls, text: str) -> Restrictions:
        """From the text above; Misuse says what is wrong with it."""
        if text.strip() == OPEN:
            return cls(None)
        alternatives = [tuple(map(_condition, part.split("&"))) for part in text.split("|")]
        return cls(tuple(alternatives))

    @classmethod
    def authorised(cls) -> Restrictions:
        """Only who may publish or subscribe, at the moment of asking."""
        return cls(((Condition(CertificateField.RIGHT, tuple(map(str, Right))),),))

    @classmethod
    def roles(cls, *roles: Role) -> Restrictions:
        """Only who has one of these roles."""
        return cls(((Condition(CertificateField.ROLE, tuple(map(str, roles))),),))

    def permits(self, holder: Certificate, rights: frozenset[Right] = NO_RIGHTS) -> bool:
        """Whether the holder of this certificate, which was verified, may find what is restricted so.

        `rights` are those it has on the topic that is advertised.
        """
        if self.alternatives is None:
            return True
        return any(all(condition.holds(holder, rights) for condition in each) for each in self.alternatives)

    @property
    def asks_for_rights(self) -> bool:
        """Whether what the realm has granted decides."""
        return any(c.credential is CertificateField.RIGHT for each in self.alternatives or () for c in each)

    def to_cbor(self) -> Any:
        if self.alternatives is None:
            return OPEN
        return [[[str(c.credential), list(c.values)] for c in conditions] for conditions in self.alternatives]

    @classmethod
    def from_cbor(cls, body: Any) -> Restrictions:
        """Misuse for what `to_cbor` does not write."""
        if body == OPEN:
            return cls(None)
        try:
            return cls(tuple(tuple(_from_cbor(condition) for condition in conditions) for conditions in body))
        except (TypeError, ValueError):
            raise Misuse("these are no restrictions") from None

    def __str__(self) -> str:
        if self.alternatives is None:
            return OPEN
        return " | ".join(" & ".join(map(str, conditions)) for conditions in self.alternatives)


EVERYONE: Final = Restrictions(None)


def _named(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _condition(text: str) -> Condition:
    credential, equals, values = text.partition("=")
    try:
        about = CertificateField(credential.strip())
    except ValueError:
        raise Misuse(
            f"{text.strip()[:80]!r} is no condition",
            hint=f"write {OPEN}, or NAME=VALUE of {', '.join(CertificateField)}",
        ) from None
    return Condition(about, tuple(value.strip() for value in values.split(",")) if equals else ())


def _from_cbor(body: Any) -> Condition:
    credential, values = body
    if not isinstance(credential, str) or not isinstance(values, list) or not all(isinstance(v, str) for v in values):
        raise TypeError
    return Condition(CertificateField(credential), tuple(values))
