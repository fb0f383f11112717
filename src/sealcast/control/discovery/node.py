"""A discovery node: keeps advertisements, and shows each asker those that it may find.

    discovery/advertise   an advertisement               -> discovery/kept      the number of the change
    discovery/find        a query                        -> discovery/found     [advertisements, more]
    discovery/pull        a change's number, by a node   -> discovery/changes   [advertisements, last change]

**Not even existence.** A query is answered in this order: what may this asker find, and of that, what matches. The
first step looks at every advertisement alike, whatever the query; the second sees only what the first let through. So
what an asker may not find has no influence on what its query costs, and none on the answer: "nothing there" and "not
for you" are the same bytes, in an envelope of the same size. (That a node keeps more, it may learn from the time of the
first step. How much more, of whom, and what: not.)
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from typing import Final, Protocol

from sealcast.control.discovery.advertisements import (
    Advertised,
    AdvertisementReason,
    AdvertisementRejected,
    stored,
    verify,
)
from sealcast.control.discovery.queries import MAX_ANSWERS, DiscoveryQuery, Matcher
from sealcast.control.discovery.restrictions import NO_RIGHTS
from sealcast.control.discovery.store import AdvertisementStore
from sealcast.control.envelopes import MAX_BODY_BYTES, ProvenMessage, Verify
from sealcast.control.service import Answer
from sealcast.errors import FrameRejected, Misuse
from sealcast.trust.certificates import signed
from sealcast.trust.certificates.certificate import Certificate, Role, parse
from sealcast.trust.realm.changes import Right
from sealcast.wire import cbor

ADVERTISE: Final = "discovery/advertise"
KEPT: Final = "discovery/kept"
FIND: Final = "discovery/find"
FOUND: Final = "discovery/found"
PULL: Final = "discovery/pull"
CHANGES: Final = "discovery/changes"

MAX_ADVERTISEMENTS: Final = 100_000
MAX_EACH: Final = 4_096
#: Answers beyond this are given in parts; half of what an envelope carries.
MAX_ANSWER_BYTES: Final = MAX_BODY_BYTES // 2
#: Askers whose view is kept ready.
_MAX_VIEWS: Final = 256

#: And for how long: a right that is granted or taken away shows after this at the latest.
_VIEW_US: Final = 1_000_000

Key = tuple[str, bytes]


class TopicDecisions(Protocol):
    """What a realm's registry has decided about topics."""

    def owner_of(self, topic_id: bytes, /) -> str | None:
        """Whose a topic is; None for what is no topic of the registry's."""

    def rights_of(self, topic_id: bytes, name: str, at_us: int, /) -> frozenset[Right]:
        """What an entity may do there at that time."""


class DiscoveryNode:
    """The rules of one node over its store; a `service.Handler`."""

    kinds: frozenset[str] = frozenset({ADVERTISE, FIND, PULL})

    def __init__(
        self,
        store: AdvertisementStore,
        realm: bytes,
        verify: Verify,
        *,
        known: TopicDecisions,
        max_each: int = MAX_EACH,
        max_all: int = MAX_ADVERTISEMENTS,
    ) -> None:
        """`known` is what a registry decided. A topic that it does not know is its first advertiser's."""
        self._store, self._realm, self._verify = store, realm, verify
        self._decided = known
        self._max_each, self._max_all = max_each, max_all
        self._known: dict[Key, Advertised] = {}
        self._owners: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()
        self._read_to = 0
        #: (end, key), the soonest first; some may have been replaced since.
        self._ends: list[tuple[int, Key]] = []
        #: asker's certificate -> what it may find, of change `_read_to`
        self._views: OrderedDict[bytes, tuple[int, list[Advertised]]] = OrderedDict()

    def handle(self, request: ProvenMessage, now_us: int, /) -> Answer:
        body, asker = request.message.body, request.sender
        match request.message.kind:
            case "discovery/advertise":
                return Answer(KEPT, cbor.encode(self.keep(body, now_us)))
            case "discovery/find":
                found, more = self.find(DiscoveryQuery.from_bytes(body), asker, now_us)
                return Answer(FOUND, cbor.encode([[a.data for a in found], more]))
            case _:
                return Answer(CHANGES, cbor.encode(self.pull(body, asker)))

    @property
    def empty(self) -> bool:
        """Whether it never kept anything."""
        return not self._store.last_change()

    # --- keeping ---------------------------------------------------------------------------------

    def keep(self, data: bytes, now_us: int) -> int:
        """Keep an advertisement, whoever brought it: it proves itself. Keeping the same again is fine."""
        new = verify(data, self._realm, self._verify, now_us)  # (1) to (11)
        self._refresh(now_us)
        known = self._known.get(new.key)
        # (12) A topic has one owner.
        owner = self._decided.owner_of(new.about.id) or self._owners.get(new.about.id)
        if owner is not None and owner != new.owner.name:
            raise _no(AdvertisementReason.OWNER, "what this advertises belongs to someone else")
        # (13) Only forwards. Said again in the same words is no news: signatures of the same may differ, words not.
        if known is not None and new.about.sequence <= known.about.sequence:
            if new.about == known.about:
                return self._store.last_change()
            raise _no(AdvertisementReason.SEQUENCE, "a newer advertisement of this is known", hint="count on from it")
        # (14) Room for everyone.
        if known is None and (self._counts[new.owner.name] >= self._max_each or len(self._known) >= self._max_all):
            raise _no(AdvertisementReason.QUOTA, f"{new.owner.name!r} has no room left here", hint="withdraw some")
        change = self._store.put(*new.key, new.about.sequence, new.about.expires_us, new.data)
        self._refresh(now_us)
        return change

    # --- finding ---------------------------------------------------------------------------------

    def find(self, query: DiscoveryQuery, asker: Certificate, now_us: int) -> tuple[list[Advertised], bool]:
        """Finds what matches among what `asker` may find, and says whether there is more after it."""
        self._refresh(now_us)
        matcher, found, size = Matcher.parse(query.text), list[Advertised](), 0
        for candidate in self._view(asker, now_us):
            about = candidate.about
            if about.expires_us <= now_us or (query.what is not None and about.what is not query.what):
                continue
            if (query.after is not None and candidate.key <= query.after) or not matcher.matches(about):
                continue
            size += len(candidate.data)
            if len(found) == MAX_ANSWERS or (found and size > MAX_ANSWER_BYTES):
                return found, True
            found.append(candidate)
        return found, False

    def _view(self, asker: Certificate, now_us: int) -> list[Advertised]:
        """What `asker` may find, in order: every advertisement is looked at, and none more than another."""
        made_us, view = self._views.get(asker.fingerprint, (0, []))
        if not 0 <= now_us - made_us < _VIEW_US:
            known = (self._known[key] for key in sorted(self._known))
            view = [a for a in known if self._permits(a, asker, now_us) | (a.owner.name == asker.name)]
            self._views[asker.fingerprint] = now_us, view
            if len(self._views) > _MAX_VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(asker.fingerprint)
        return view

    def _permits(self, advertised: Advertised, asker: Certificate, now_us: int) -> bool:
        about, rights = advertised.about, NO_RIGHTS
        if about.restrictions.asks_for_rights:
            rights = self._decided.rights_of(about.id, asker.name, now_us)
        return about.restrictions.permits(asker, rights)

    # --- healing ---------------------------------------------------------------------------------

    def pull(self, body: bytes, asker: Certificate) -> list[object]:
        """Everything that changed after a change, for another node; nobody else is told that there is anything."""
        try:
            after = cbor.decode(body, max_bytes=16, max_depth=0, max_items=1)
        except FrameRejected:
            after = None
        if not isinstance(after, int) or isinstance(after, bool) or not 0 <= after < 2**63:
            raise Misuse("a pull names the last change that is known")
        rows = self._store.since(after, MAX_ANSWERS) if Role.DISCOVERY in asker.roles else []
        taken, size = list[bytes](), 0
        for change, data in rows:
            size += len(data)
            if taken and size > MAX_ANSWER_BYTES:
                break
            taken.append(data)
            after = change
        return [taken, after]

    def close(self) -> None:
        self._store.close()

    # --- inside ----------------------------------------------------------------------------------

    def _refresh(self, now_us: int) -> None:
        """Take in what was kept since, by whichever process; let go of what has expired."""
        for change, data in self._store.since(self._read_to):
            self._take_in(stored(data, parse(signed.apart(data).certificate)))
            self._read_to = change
            self._views.clear()
        if not self._ends or self._ends[0][0] > now_us:
            return
        while self._ends and self._ends[0][0] <= now_us:
            _, key = heapq.heappop(self._ends)
            gone = self._known.get(key)
            if gone is not None and gone.about.expires_us <= now_us:
                del self._known[key]
                self._counts[gone.owner.name] -= 1
                self._owners.pop(gone.about.id, None)
        self._store.forget(now_us)
        self._views.clear()

    def _take_in(self, advertised: Advertised) -> None:
        if advertised.key not in self._known:
            self._counts[advertised.owner.name] += 1
        self._known[advertised.key] = advertised
        heapq.heappush(self._ends, (advertised.about.expires_us, advertised.key))
        self._owners.setdefault(advertised.about.id, advertised.owner.name)


def _no(reason: AdvertisementReason, message: str, *, hint: str | None = None) -> AdvertisementRejected:
    return AdvertisementRejected(reason, message, hint=hint)
