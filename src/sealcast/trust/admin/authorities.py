"""The authority itself: its successor in time, and its replacement in need.

Both need the root's key. A successor issues from now on, and what was issued before stays. A replacement is for an
authority whose key is lost or known to others: in one transaction the next one is made known, everyone gets a
certificate from it for the keys they have, live subscriptions get tokens under it, and the root revokes the one before.
No state in between is ever seen, in which everybody is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from sealcast.primitives.x509 import SECOND_US
from sealcast.trust.admin.entities import EntityAdministration
from sealcast.trust.certificates import certificate as certificates
from sealcast.trust.certificates.authority import LIFETIME_US, Authority, Wanted
from sealcast.trust.certificates.certificate import Certificate
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.certificates.revocation import RevocationLog
from sealcast.trust.realm.changes import Change, RenewCertificate, RevokeCertificates
from sealcast.trust.realm.machine import Fold, RealmState


@dataclass(frozen=True, slots=True)
class Replacement:
    """What replacing an authority did."""

    made: Certificate
    revoked: tuple[Certificate, ...]
    certificates: int
    version: int


class AuthorityAdministration(EntityAdministration):
    """What an administrator does about the authority."""

    def succeed_authority(self) -> Certificate:
        """The next authority under the root: issues from now on."""
        authority = self.authority()
        made = self._next(authority, self.clock())
        self.registry.transact(lambda state: self._successors(authority, state))
        return made

    def replace_authority(
        self, cause: Cause = Cause.AUTHORITY_COMPROMISE, *, lifetime_us: int = LIFETIME_US
    ) -> Replacement:
        """The next authority, and the root revokes all before it: what they issued counts no more, but was renewed."""
        authority, issuer, now = self.authority(), self.issuer(), self.clock()
        made = self._next(authority, now)
        gone = tuple(each for each in authority.authorities if each != made)
        renewed = 0

        def decide(state: RealmState) -> list[Change]:
            nonlocal renewed
            self._catch_up(authority, state)
            renewals = self._renewals(authority, state, now, lifetime_us)
            renewed = len(renewals)
            changes: list[Change] = [*self._successors(authority, state), *renewals]
            changes += self._end(authority, state, gone, cause, now)
            after = Fold(state)
            for change in changes:
                after.apply(change)
            settled = after.state()
            tokens = (issuer.renewals(settled, topic, now, at_half_life=False) for topic in settled.topics)
            return [*changes, *(change for each in tokens for change in each)]

        after = self.registry.transact(decide)
        authority.lists.accept(after.revocations(authority.lists.view.number))
        return Replacement(made, gone, renewed, after.version)

    def _next(self, authority: Authority, now: int) -> Certificate:
        """One that was made but never made known, because that was cut short, is as good as new."""
        known = {each.der for each in self.trust().intermediates}
        waiting = [each for each in authority.authorities if each.der not in known]
        return waiting[-1] if waiting else authority.succeed(now)

    def _renewals(self, authority: Authority, state: RealmState, now: int, lifetime_us: int) -> list[RenewCertificate]:
        live = [who for who in state.entities.values() if not who.revoked]
        # A renewed certificate outlives the one before, also when that was issued this very second.
        lifetime_us = max([lifetime_us, *(who.expires_us - now + SECOND_US for who in live)])
        wanted = [Wanted(who.name, certificates.parse(who.certificate).keys, who.roles) for who in live]
        issued = authority.issue_many(wanted, now, lifetime_us)
        return [RenewCertificate(c.name, c.der, c.serial, c.not_after_us) for c in issued]

    def _end(
        self, authority: Authority, state: RealmState, gone: tuple[Certificate, ...], cause: Cause, now: int
    ) -> list[Change]:
        kept = authority.lists
        # Signed on a copy in memory: what the authority itself keeps follows when the registry has it.
        authority.lists = RevocationLog(authority.trust(), state.revoked, state.revocation_lists)
        try:
            authority.revoke([each.serial for each in gone], cause, now)
            made = authority.lists.since(state.revoked.number) or []
        finally:
            authority.lists = kept
        return [RevokeCertificates(each) for each in made]
