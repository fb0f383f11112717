"""Advertising and finding, from an entity's side. Every node is asked; one that answers is enough.

Nodes are trusted to keep silent towards those who may not know, and with nothing else: what they hand out is verified
here, signature by signature. A node can withhold or be out of date; so answers of all nodes are put together, in
whatever order they come, and for each (owner, id) the highest sequence counts. A withdrawal counts as any other: one
node that knows of it overrules all that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sealcast.control.asking import Asker, ServiceAddress
from sealcast.control.discovery import advertisements
from sealcast.control.discovery.advertisements import Advertised, Advertisement, AdvertisementRejected, What
from sealcast.control.discovery.bootstrap import NodeAddress
from sealcast.control.discovery.node import ADVERTISE, FIND, PULL, DiscoveryNode
from sealcast.control.discovery.queries import DiscoveryQuery, Matcher
from sealcast.control.envelopes import EnvelopeRecipient
from sealcast.errors import FrameRejected, NotFound, Rejected, SealcastError, Unavailable
from sealcast.trust.certificates.certificate import Role
from sealcast.wire import cbor

#: A node that answers "there is more" for ever is not listened to for ever.
MAX_PAGES: Final = 2_048


@dataclass(frozen=True, slots=True)
class FoundOffer:
    """An advertisement, verified, and the nodes that had this one."""

    advertised: Advertised
    nodes: tuple[str, ...]

    @property
    def owner(self) -> str:
        return self.advertised.owner.name

    @property
    def about(self) -> Advertisement:
        return self.advertised.about

    def fresh(self, now_us: int, certificate: bytes) -> bool:
        """Whether it need not be advertised again yet: half its life is left, and its owner's certificate is this."""
        half = 2 * now_us < self.about.issued_us + self.about.expires_us
        return half and self.advertised.owner.der == certificate


@dataclass(frozen=True, slots=True)
class Spread:
    """Which nodes did what they were asked, and why the others did not."""

    done: tuple[str, ...]
    failed: Mapping[str, SealcastError] = field(default_factory=dict)


class Discovery:
    """Advertises and finds, as one entity.

    `turn_of` gives one turn of a node that can be run in this process, None for a node that runs elsewhere.
    """

    def __init__(
        self,
        asker: Asker,
        nodes: Callable[[], Sequence[NodeAddress]],
        turn_of: Callable[[str], Callable[[], object] | None] = lambda _: None,
    ) -> None:
        self._asker, self._nodes, self._turn_of = asker, nodes, turn_of

    # --- advertising -----------------------------------------------------------------------------

    def advertise(self, advertisement: Advertisement) -> Spread:
        """Sign it and have every node keep it; at least one must."""
        return self.spread(advertisements.sign(self._asker.me, self._asker.realm, advertisement))

    def withdraw(self, advertisement: Advertisement) -> Spread:
        """There is nothing there any more."""
        return self.advertise(advertisement.withdrawal(self._asker.clock()))

    def spread(self, data: bytes) -> Spread:
        """Have every node keep an advertisement, whoever's it is."""
        done, failed = list[str](), dict[str, SealcastError]()
        for name in self._names():
            try:
                self._ask(name, ADVERTISE, data)
                done.append(name)
            except (Rejected, Unavailable, NotFound) as error:
                failed[name] = error
        if not done:
            raise self._first(failed, "no discovery node kept it")
        return Spread(tuple(done), failed)

    # --- finding ---------------------------------------------------------------------------------

    def find(self, text: str, what: What | None = What.TOPIC) -> list[FoundOffer]:
        """What this entity may find, newest word of each owner; sorted by path, then owner."""
        query, matcher = DiscoveryQuery(text, what), Matcher.parse(text)
        newest: dict[tuple[str, bytes], Advertised] = {}
        seen: dict[tuple[str, bytes], dict[str, int]] = {}
        failed, answered = dict[str, SealcastError](), 0
        for node in self._names():
            try:
                for advertised in self._answers(node, query):
                    seen.setdefault(advertised.key, {})[node] = advertised.about.sequence
                    known = newest.get(advertised.key)
                    if known is None or known.about.sequence < advertised.about.sequence:
                        newest[advertised.key] = advertised
                answered += 1
            except (Rejected, Unavailable, NotFound) as error:
                failed[node] = error
        if not answered:
            raise self._first(failed, "no discovery node answered")
        found = [
            FoundOffer(a, tuple(node for node, sequence in seen[key].items() if sequence == a.about.sequence))
            for key, a in newest.items()
            if not a.about.withdrawn and matcher.matches(a.about) and what in (None, a.about.what)
        ]
        return sorted(found, key=lambda f: (f.about.path, f.owner, f.about.id))

    def service(self, what: What, owner: str | None = None) -> Callable[[], ServiceAddress]:
        """Where a service listens, found anew each time it is asked for: for `Asker.ask`."""

        def where() -> ServiceAddress:
            offers = [f for f in self.find("*", what) if owner in (None, f.owner)]
            if not offers:
                whose = f"{what} {owner!r}" if owner is not None else what
                raise NotFound(f"no {whose} can be found", hint="it is not there, or not for you to find")
            newest = max(offers, key=lambda f: f.about.sequence)
            topic = newest.about.control_topic
            assert topic is not None  # a service says where it listens: check 6
            return ServiceAddress(topic, EnvelopeRecipient.of(newest.advertised.owner))

        return where

    # --- healing ---------------------------------------------------------------------------------

    def heal(self, node: DiscoveryNode) -> int:
        """For a node that lost its store: keep what the others have; how many it took in."""
        kept = 0
        for name in self._names():
            if name == self._asker.me.name:
                continue
            after = 0
            for _ in range(MAX_PAGES):
                try:
                    page, after = self._pulled(name, after)
                except (Unavailable, Rejected, NotFound):
                    break
                if not page:
                    break
                for data in page:
                    kept += self._kept(node, data)
        return kept

    def _kept(self, node: DiscoveryNode, data: bytes) -> bool:
        try:
            node.keep(data, self._asker.clock())
        except AdvertisementRejected:
            # Expired meanwhile, or older than what it has. It proves itself or it is not kept.
            return False
        return True

    # --- inside ----------------------------------------------------------------------------------

    def _answers(self, node: str, query: DiscoveryQuery) -> Iterable[Advertised]:
        after: tuple[str, bytes] | None = None
        for _ in range(MAX_PAGES):
            page, more = self._page(node, DiscoveryQuery(query.text, query.what, after))
            for data in page:
                try:
                    found = advertisements.verify(data, self._asker.realm, self._asker.verify, self._asker.clock())
                except AdvertisementRejected:
                    continue
                after = max(after or found.key, found.key)
                yield found
            if not more or not page:
                return

    def _page(self, node: str, query: DiscoveryQuery) -> tuple[list[bytes], bool]:
        body = _read(self._ask(node, FIND, query.to_bytes()))
        match body:
            case [list(page), bool(more)] if all(isinstance(data, bytes) for data in page):
                return page, more
        raise Unavailable(f"discovery node {node!r} answers in a way that this release does not know")

    def _pulled(self, node: str, after: int) -> tuple[list[bytes], int]:
        match _read(self._ask(node, PULL, cbor.encode(after))):
            case [list(page), int(last)] if all(isinstance(data, bytes) for data in page):
                return page, last
        raise Unavailable(f"discovery node {node!r} answers in a way that this release does not know")

    def _ask(self, name: str, kind: str, body: bytes) -> bytes:
        def where() -> ServiceAddress:
            node = next((n for n in self._nodes() if n.name == name), None)
            if node is None:
                raise NotFound(f"discovery node {name!r} is no longer listed")
            # By the authority's word, not by the list's.
            holder = self._asker.verify(node.certificate, self._asker.clock())
            if holder.name != name or Role.DISCOVERY not in holder.roles:
                raise Rejected(f"the certificate listed for {name!r} is no discovery node's of that name")
            return ServiceAddress(node.topic, EnvelopeRecipient.of(holder))

        return self._asker.ask(where, kind, body, turn=self._turn_of(name)).message.body

    def _names(self) -> list[str]:
        names = [node.name for node in self._nodes()]
        if not names:
            raise Unavailable(
                "this realm lists no discovery nodes",
                hint="they are listed once they have run where their keys are: sealcast serve",
            )
        return names

    def _first(self, failed: Mapping[str, SealcastError], what: str) -> SealcastError:
        """If all who answered said the same, that is the answer; otherwise everyone's is told."""
        every = list(failed.values())
        errors = [e for e in every if isinstance(e, Rejected)] or every
        if all(type(e) is type(errors[0]) and e.message == errors[0].message for e in errors):
            return errors[0]
        told = "; ".join(f"{node}: {error.message}" for node, error in failed.items())
        return Unavailable(f"{what} ({told})", hint="are the nodes running?")


def _read(body: bytes) -> object:
    try:
        return cbor.decode(body, max_depth=3, max_items=4_096)
    except FrameRejected:
        return None
