"""A key center at work: decides in transactions of the registry, and listens on a control topic.

Most of what it is asked changes nothing: a token is minted from what was decided before, and only read. What changes
something is one transaction: a center that is killed has decided or has not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sealcast.control.center.proofs import ProofRecords
from sealcast.control.center.rules import CenterDecision, MoreRules, Rules, nothing_more
from sealcast.control.discovery.advertisements import What
from sealcast.control.discovery.restrictions import Restrictions
from sealcast.control.envelopes import ProvenMessage
from sealcast.control.service import Answer, Service
from sealcast.control.serving import listening, settle
from sealcast.errors import Rejected
from sealcast.primitives.secrets import Unpicklable
from sealcast.trust.certificates.certificate import Role
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.centers import CenterSecrets
from sealcast.trust.realm.changes import Change
from sealcast.trust.realm.state import RealmState

#: Who may find a center: everyone the authority certified for using topics or carrying them.
FOUND_BY: Final = Restrictions.roles(Role.ENTITY, Role.BROKER)


class KeyCenter(Unpicklable):
    """Answers for one center. It is a `service.Handler`."""

    def __init__(self, realm: OpenRealm, secrets: CenterSecrets, more: MoreRules = nothing_more) -> None:
        self._realm, self._author, self._name = realm, secrets.identity.author, secrets.name
        self._proofs = ProofRecords(realm.paths.root / "centers" / secrets.name / "standing.sqlite")
        self._rules = Rules(secrets, realm.id, self._proofs.get, more)
        self.kinds = self._rules.kinds

    def handle(self, request: ProvenMessage, now_us: int, /) -> Answer:
        message = request.message

        def decide(state: RealmState) -> CenterDecision:
            return self._rules.decide(message.kind, message.body, request.sender, state, now_us)

        decision = settle(self._realm, decide, self._author)
        if decision.known is not None:
            self._proofs.put(decision.known.topic, decision.known.entity, decision.known.record)
        if isinstance(decision.answer, Rejected):
            raise decision.answer
        return decision.answer

    def rotate_due(self, now_us: int, messages: Mapping[str, int]) -> dict[str, str]:
        """Replaces the keys for which that is due (`issuing.rotation_due`); their topics, each with the reason."""
        if not self._rules.due(self._realm.state(), now_us, messages)[0]:
            return {}
        due: dict[str, str] = {}

        def changes(state: RealmState) -> list[Change]:
            found, made = self._rules.due(state, now_us, messages)
            due.clear()
            due.update(found)
            return made

        self._realm.registry.transact(changes, self._author)
        return due

    def forget(self, now_us: int) -> bool:
        """Forgets, in its file, what nobody needs of past epochs (`CenterSecrets.forget`); whether anything was."""
        state, path = self._realm.state(), self._realm.paths.center_key(self._name)
        topics, seen = [found.topic for found in state.topics.values()], self._realm.registry.time_of(state.version)
        return path.exists() and CenterSecrets.forget(path, topics, now_us, seen, list(state.deleted.values()))

    def close(self) -> None:
        self._proofs.close()


def center_service(
    realm: OpenRealm,
    secrets: CenterSecrets,
    *,
    more: MoreRules = nothing_more,
    advertised: bool = True,
    restrictions: Restrictions = FOUND_BY,
) -> tuple[Service, KeyCenter]:
    """A center and its service, ready to `start`; `more` are rules on further kinds of request."""
    center = KeyCenter(realm, secrets, more)
    found_by = restrictions if advertised else None
    return listening(realm, What.KEY_CENTER, secrets.identity, center, found_by, on_close=center.close), center


def center_here(
    realm: OpenRealm, name: str, found_by: Restrictions | None = None, more: MoreRules = nothing_more
) -> tuple[Service, KeyCenter] | None:
    """The center of that name, where its keys are at hand; it is advertised to those in `found_by`, if to any."""
    path = realm.paths.center_key(name)
    if not path.exists():
        return None
    secrets, advertised = CenterSecrets.load(path), found_by is not None
    return center_service(realm, secrets, more=more, advertised=advertised, restrictions=found_by or FOUND_BY)
