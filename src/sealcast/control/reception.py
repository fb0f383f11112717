"""The reception: enrols whoever has an invitation's code. It runs where the administrator's keys are.

A gateway cannot enrol anybody, and relays requests to a control topic that the reception listens on; which one, is in
a file that no client is served (`log/receiving.py`). Nobody has proven anything by posting there. So, in this order:

    1. it is a request, and names an invitation that was made here       otherwise: `code`
    2. it was made with the code (its tag); a wrong one costs an attempt  otherwise: `code`
    3. the invitation stands yet                                          otherwise: `attempts`, `revoked`, `expired`
    4. realm, root and name are those of the invitation                   otherwise: `code`
    5. it was used by nobody, or by these very keys                       otherwise: `used`
    6. its maker has the private keys that sign                           otherwise: `possession`

Who does not have the code learns the same word, whatever is wrong. Then the keys claim the invitation, durably, and are
enrolled with the rights that wait for them, in one transaction. The same request again gets the same certificate: an
answer that was lost is asked for once more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

from sealcast.control.invited import OPEN, REVOKED, Invitation, Invitations
from sealcast.errors import Busy, FrameRejected, Misuse, NotFound, Rejected
from sealcast.log.closing import Closing
from sealcast.log.control_topics import ControlPlane
from sealcast.log.receiving import JoinPost, ReceptionPlace, refusal, settled
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.admin.entities import canonical_hosts
from sealcast.trust.admin.newcomers import enrol_public, rehearse
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import at_hand
from sealcast.trust.heads import Head
from sealcast.trust.invitations import InvitationCode, JoinAnswer, JoinRequest
from sealcast.trust.layout import Layout, read_mark
from sealcast.trust.realm.changes import Grant
from sealcast.wire import cbor

TURN_RECORDS: Final = 64
MAX_FOR_US: Final = 365 * 86_400 * 1_000_000
_WHY: Final = {
    "code": "this code opens nothing here: it was mistyped, is of another realm, or was never made",
    "attempts": "there were too many bogus attempts on this invitation",
    "revoked": "this invitation was revoked",
    "expired": "this invitation is over",
    "used": "this code was used already, with other keys",
    "possession": "the request does not prove that its maker has the private keys",
    "name": "the name or the rights of this invitation cannot be given now",
}


def store_of(paths: Layout) -> Invitations:
    """The invitations of a realm, beside the administrator's key."""
    return Invitations(paths.invitations)


def invite(
    realm: Realm,
    name: str,
    grants: tuple[Grant, ...],
    for_us: int,
    role: Role = Role.ENTITY,
    hosts: Sequence[str] = (),
) -> tuple[InvitationCode, int]:
    """A code that enrols whoever has it under this name and in this role, once, and until when. A gateway answers at
    hosts."""
    if not 0 < for_us <= MAX_FOR_US:
        raise Misuse("an invitation stands for a second at least, and for a year at most")
    at = canonical_hosts(hosts) if role is Role.GATEWAY else ()
    rehearse(realm.state(), name, grants, role)
    code, now = InvitationCode.make(realm.id, read_mark(realm.paths).root, name, role), realm.clock()
    with store_of(realm.paths) as store:
        store.add(code.keys(), name, grants, now + for_us, now, role, at)
    return code, now + for_us


class Reception(Closing, Unpicklable):
    """Answers requests to join, a turn at a time."""

    def __init__(self, realm: Realm) -> None:
        self._realm, self._root = realm, read_mark(realm.paths).root
        self._store, self._plane = store_of(realm.paths), ControlPlane(realm.paths.root, origin="reception")
        self._place: ReceptionPlace = settled(self._plane)
        self.counts: Counter[str] = Counter()

    @classmethod
    def here(cls, realm: Realm) -> Reception | None:
        """None where the administrator's keys are not."""
        return cls(realm) if at_hand(realm.paths.administrator_key) and realm.paths.authority.is_dir() else None

    def turn(self) -> int:
        """Takes what is queued, at most so much, and answers it."""
        try:
            posts = self._place.read(TURN_RECORDS)
        except NotFound:
            self._place = settled(self._plane)
            return 0
        for posted in posts:
            if (post := JoinPost.parse(posted.data)) is None:
                self.counts["malformed"] += 1
                continue
            answer = self.answer(post.request)
            if self._plane.awaits_reply(post.reply_topic):
                try:
                    self._plane.post(post.reply_topic, answer)
                except (NotFound, Busy):
                    self.counts["unheard"] += 1
        if posts:
            self._place.take(posts[-1].offset + 1)
        return len(posts)

    def answer(self, raw: bytes) -> bytes:
        """What the gateway relays back: [reason, words] for a refusal, else [answer]."""
        try:
            request = JoinRequest.parse(raw)
        except FrameRejected:
            return self._refused("code")
        found = self._store.find(request.invitation)
        if found is None:
            return self._refused("code")
        if (reason := self._refuse(request, found)) is not None:
            return self._refused(reason)
        try:
            made = self._enrol(request, found)
        except (Misuse, Rejected):
            return self._refused("name")
        self.counts["joined"] += 1
        return cbor.encode([made])

    def close(self) -> None:
        self._store.close()
        self._plane.close()

    # --- inside -------------------------------------------------------------------------------------

    def _refused(self, reason: str) -> bytes:
        self.counts[reason] += 1
        return refusal(reason, _WHY[reason])

    def _refuse(self, request: JoinRequest, found: Invitation) -> str | None:
        """Why not; None for a request that is to be granted."""
        if not request.is_under(found.keys.request):
            self._store.bogus(found.id)
            return "code"
        if found.standing == REVOKED:
            return "revoked"
        if found.standing == OPEN and (found.attempts <= 0 or self._realm.clock() >= found.until_us):
            return "attempts" if found.attempts <= 0 else "expired"
        if (request.realm, request.root, request.name) != (self._realm.id, self._root, found.name):
            return "code"
        if found.claimed not in (None, _digest(request)):
            return "used"
        return None if request.proves_possession() else "possession"

    def _enrol(self, request: JoinRequest, found: Invitation) -> bytes:
        realm = self._realm
        if not self._store.claim(found.id, _digest(request)):
            raise Misuse("another was faster")
        entity = enrol_public(realm, found.name, request.keys, found.grants, found.role, found.hosts)
        state = realm.state()
        trust, head = realm.trust(state), realm.registry.head()
        issuer = trust.issuer_of(entity.certificate)
        others = [each.der for each in trust.intermediates if each.der != issuer]
        made = JoinAnswer(realm.name, entity.certificate, (issuer, *others), trust.root.der, Head(*head))
        return made.to_bytes(found.keys.answer, request)


def _digest(request: JoinRequest) -> bytes:
    keys = request.keys
    return hashlib.sha256(cbor.encode([keys.identity, keys.verify_key, keys.kem_public])).digest()
