"""What a subscriber of a `layered` topic wants, said to its broker in a way that only tells where events should go.

    filter --check--> condition --labels--> conjunctions --encrypt_filter, tree by tree--> posts to its broker

The text stays in files of its own (`own_filters`). Every publisher has a tree of its own, and a new epoch or generation
has new ones: what is wanted is said again in each tree that does not know it yet (`refresh`), and a newer token is
shown before the one before it ends. Whoever reads does that on the way; beside a pipeline that runs, `together` does it
for everyone whose keys are here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sealcast.control.wallet import Wallet
from sealcast.errors import FilterRejected, Misuse, NotFound, Rejected, SealcastError, Unavailable
from sealcast.filters.check import fit
from sealcast.filters.cost import names
from sealcast.filters.evaluate import evaluate
from sealcast.filters.labels import LabelCost, LabelFilter, label_filter
from sealcast.filters.parse import parse
from sealcast.filters.remembered import CONDITION_BYTES, Remembered
from sealcast.filters.tree import Condition
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.log.closing import Closing
from sealcast.model.event import OpenedEvent
from sealcast.model.schema import Schema
from sealcast.primitives.secrets import Unpicklable
from sealcast.protections.labelled import named, new_ids
from sealcast.protections.layered.filters.posts import Numbered, signed_posts
from sealcast.protections.layered.layering import check_slots, layering_of
from sealcast.protections.layered.own_filters import ToldFilters
from sealcast.protections.layered.participant import Participant, trees_now
from sealcast.protections.layered.subscribe import FilterEncrypter
from sealcast.protections.layered.telling import Refreshed, RightChanges, Said, Telling, tell
from sealcast.protections.layered.told import Due, Told
from sealcast.protections.layered.tree import TreeId
from sealcast.protections.own_filters import MAX_FILTERS, OwnFilter
from sealcast.protections.port import Interest
from sealcast.trust.handles import EntityRealm
from sealcast.trust.keys.layer_keys import LayerKeyring, key_file, own_identity
from sealcast.trust.realm.changes import Right
from sealcast.trust.realm.state import RealmState
from sealcast.wire.frame import token_digest

#: Of filters that are kept compiled, and of their labels: some thousand filters, as they usually are.
MAX_COMPILED_BYTES: Final = 64 << 20
_LABEL_BYTES: Final = 256


class LayeredInterests(Closing, Unpicklable):
    """One entity's filters on one topic. Close it."""

    def __init__(self, realm: EntityRealm, topic: str, name: str) -> None:
        """NotFound where the entity's keys are not on this machine."""
        self.realm, self.topic, self.name = realm, topic, name
        state = realm.state()
        about, self._layering = state.topic(topic), layering_of(state, topic)
        if not key_file(realm, state, name).exists():
            raise NotFound(
                f"the keys of {name!r} are not here: on the layered topic {topic!r} a subscriber encrypts its own "
                "filters, and nobody else has them",
                hint=f"do this where {name!r} keeps its key file",
            )
        self._identity = own_identity(realm, state, name)
        self._topic_id = about.id
        self._own = own_filters(realm, state, topic, name)
        self.participant = Participant(realm, topic, self._identity)
        #: Its tokens.
        self.wallet = Wallet(realm, name, identity=self._identity)
        self._condition: Remembered[str, Condition] = Remembered(
            lambda text: fit(parse(text), self._schema),
            lambda text, _: CONDITION_BYTES * (len(text) + 1),
            MAX_COMPILED_BYTES,
        )
        self._compiled = Remembered(
            self._compile, lambda text, made: len(text) + _LABEL_BYTES * (made[1].cost.labels + 1), MAX_COMPILED_BYTES
        )
        #: The filters as of the last look: events are many, and filters change seldom.
        self._live: list[OwnFilter] | None = None
        #: Those and the past ones.
        self._ever: list[Condition] = []
        #: Why the last attempt to tell its broker came to nothing, if it did; it is made again.
        self.trouble: SealcastError | None = None

    @property
    def _schema(self) -> Schema:
        """The present version. Later ones only add attributes, so what was compiled of a filter stays right."""
        return (self.realm.registry.known or self.realm.state()).topic(self.topic).schema

    # --- what is wanted -------------------------------------------------------------------------------

    def filters(self) -> list[Interest]:
        """The filters, oldest first."""
        broker = self.realm.state().overlay(self.topic).places.get(self.name)
        return [Interest(each.id, self.topic, self.name, each.text, broker) for each in self._present()]

    def _present(self) -> list[OwnFilter]:
        ending = self._own.told().ending
        return [each for number, each in self._own.all().items() if number not in ending]

    def cost(self, text: str) -> LabelCost:
        """How many labels a filter takes; FilterRejected, naming what can be, when labels cannot express it."""
        return self._compiled(text)[1].cost

    def add(self, text: str, id: str | None = None, *, broker: str | None = None) -> Interest:
        """A filter; without an id it gets the subscriber's name and a number."""
        return self.add_many([(text, id)], broker=broker)[0]

    def add_many(self, wanted: Sequence[tuple[str, str | None]], *, broker: str | None = None) -> list[Interest]:
        """(filter, id or None) each: all of them, or none. Whoever has no place in the overlay gets one, at `broker` if
        it is named. They are kept on return, and told to the broker as soon as that is possible (`trouble`)."""
        self._take_place(self.check(wanted, broker), broker)
        kept = self.keep(wanted)
        self.try_refresh()
        return self.stated(kept)

    def check(self, wanted: Iterable[tuple[str, str | None]], broker: str | None = None) -> RealmState:
        """Whether it may have these filters, at a broker that is named; FilterRejected, if labels cannot express one.
        The realm as it is now."""
        state = self.realm.state()
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        present = [each.text for each in self._present()]
        labels = sum(self._compiled(text)[1].cost.labels for text in (*present, *(text for text, _ in wanted)))
        if labels > self._layering.reader_labels:
            raise FilterRejected(
                "limit",
                f"the filters of {self.name!r} would take {labels:,} labels, and a reader of {self.topic!r} may have "
                f"{self._layering.reader_labels:,}",
                hint="remove others first, or ask for fewer values or ranges",
            )
        home = state.overlay(self.topic).places.get(self.name)
        if home is not None and broker not in (None, home):
            raise Misuse(
                f"{self.name!r} is at broker {home!r}",
                hint=f"it can move: sealcast subscription move {self.topic} --as {self.name} --to {broker}",
            )
        return state

    def keep(self, wanted: Sequence[tuple[str, str | None]]) -> list[OwnFilter]:
        """Writes down filters that were checked: its broker hears of them when it is next told something."""
        state = self.realm.state()
        with self._own.locked():
            told, known = self._own.told(), {each.id for each in self._own.all().values()}
            if len(known) + len(wanted) > MAX_FILTERS:
                raise Misuse(f"{self.name!r} can have {MAX_FILTERS} filters on a topic")
            ids = list(new_ids(state, self.name, [id for _, id in wanted], known))
            for (text, _), id in zip(wanted, ids, strict=True):
                self._own.check(id, text)
            # Numbers first: those of filters that were never written are not missed.
            told = replace(told, filters=told.filters + len(wanted), version=told.version or state.version)
            self._own.save(told)
            numbered = zip(count(told.filters - len(wanted) + 1), ids, wanted, strict=False)
            return [self._own.keep(number, id, text) for number, id, (text, _) in numbered]

    def stated(self, kept: Iterable[OwnFilter]) -> list[Interest]:
        """Filters that were kept, with what their owner should know of them now."""
        about, remarks = (self.topic, self.name), tuple(self._remarks())
        home = self.realm.state().overlay(self.topic).places[self.name]
        return [Interest(each.id, *about, each.text, home, remarks) for each in kept]

    def _remarks(self) -> Iterator[str]:
        """On where it stands, and on what its broker knows."""
        state = self.realm.state()
        layers, hops = layering_of(state, self.topic).layers, state.overlay(self.topic).depth(self.name)
        if hops < layers:
            yield (
                f"{self.name!r} stands {hops} hops below publishers: its filters have {hops} layers there, not "
                f"{layers}; deeper: sealcast overlay place {self.topic} {self.name} --at BROKER"
            )
        if self.trouble is not None:
            yield f"kept, but its broker was not told yet: {self.trouble.message}"
        elif not state.publishers_of(self.topic):
            yield f"nobody has published on {self.topic!r} yet: the broker is told when somebody does"

    def remove(self, ids: Iterable[str]) -> None:
        """Ends filters, all of them or none."""
        with self._own.locked():
            told = self._own.told()
            gone = named(self._present(), ids, self.topic, self.name)
            self._own.save(replace(told, ending=told.ending | {each.number for each in gone}))
        self.try_refresh()

    def matching(self, event: OpenedEvent) -> list[str]:
        """The ids of those filters that an event is for: only whoever has them can say."""
        if self._live is None:
            self._live = self._present()
        values = dict(event.attributes)
        return [each.id for each in self._live if evaluate(self._compiled(each.text)[0], values) is True]

    def unwanted(self, columns: pa.RecordBatch, schema: Schema) -> list[int]:
        """Which events, in columns of a version of the schema, are neither for one of the filters that it has, nor for
        one that it had when they were delivered. Where no filter is known, none was kept on this machine, and nothing
        can be told; nor can it of a filter that asks for attributes which came since."""
        evaluator = Evaluator(columns, schema)
        left = self._untrue(evaluator, np.arange(columns.num_rows))
        if left.size:
            # Another process of this subscriber may have added a filter meanwhile.
            filters = (*self._own.all().values(), *self._own.past.all().values())
            self._ever = [self._condition(each.text) for each in filters]
            told = self._ever and all(names(each) <= schema.by_name.keys() for each in self._ever)
            left = self._untrue(evaluator, left) if told else left[:0]
        found: list[int] = left.tolist()
        return found

    def _untrue(self, evaluator: Evaluator, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the rows for which no filter is true."""
        for condition in self._ever:
            if rows.size:
                rows = rows[~evaluator.true(condition, rows)]
        return rows

    # --- telling the broker ---------------------------------------------------------------------------

    def try_refresh(self) -> Refreshed | None:
        """`refresh`; what keeps it from being done now is `trouble`, and no reason to lose anything."""
        try:
            done = self.refresh()
        except (Unavailable, Rejected, Misuse) as error:
            self.trouble = error
            return None
        self.trouble = None
        return done

    def refresh(self) -> Refreshed:
        """Tells the broker whatever it does not know yet: of new filters and of ended ones, in new trees, by newer
        tokens. It costs little when there is nothing to tell."""
        done = tell(self.realm, self.topic, {self.name: self.telling()})[self.name]
        if isinstance(done, SealcastError):
            raise done
        return done

    def telling(self, decided: RightChanges | None = None) -> Telling:
        """`refresh` in steps, for whoever posts for many at once: it yields posts, and goes on when they are durable.
        `decided` spares every one of them a look through the registry."""
        self._live = None
        if not self._own.all():
            return Refreshed(0, 0, ())
        state = self.realm.state()
        state.require(Right.SUBSCRIBE, self.topic, self.name, self.realm.clock())
        home = self._take_place(state, None)
        state = self.realm.state()
        held = self.wallet.get(self.topic, Right.SUBSCRIBE, state)
        token, half = held.token, (held.claims.not_before_us + held.claims.expires_us) // 2
        trees = trees_now(state, self.topic, self.name)
        ready = {tree: found for tree in trees if (found := self.participant.encrypter(state, tree)) is not None}
        with self._own.locked():
            told, made = self._own.told().at(home, ready), 0
            decided = decided or RightChanges(self.realm, self.topic)
            told = replace(
                told.seen(state.version, decided=decided.since(told.version, state.version, self.name)), renew_us=half
            )
            for due in self._due(told, ready, token_digest(token)):
                told = yield from self._say(told, due, ready[due.tree], token)
                made += 1
            told = self._forget(told)
            if told != self._own.told():
                self._own.save(told)
        return Refreshed(made, len(ready), tuple(tree.publisher for tree in trees if tree not in ready))

    @property
    def keyring(self) -> LayerKeyring:
        """Its agreement keys."""
        return LayerKeyring(self.realm, self._identity)

    def close(self) -> None:
        self.wallet.close()

    # --- inside ---------------------------------------------------------------------------------------

    def _compile(self, text: str) -> tuple[Condition, LabelFilter]:
        condition = self._condition(text)
        labels = label_filter(condition, self._schema)
        check_slots(labels, self._layering)
        return condition, labels

    def _take_place(self, state: RealmState, broker: str | None) -> str:
        """Its place in the overlay and its key of this epoch, both there on return."""
        home = state.overlay(self.topic).places.get(self.name)
        if home is None:
            home = self.realm.place_subscriber(self.topic, self.name, broker)
        self.keyring.ensure(self.topic)
        return home

    def _due(self, told: Told, ready: dict[TreeId, FilterEncrypter], token: bytes) -> Iterator[Due]:
        if told.pending is not None:
            yield told.pending
            told = told.after(told.pending, 1)
        yield from told.due(self._own.all(), ready, token, self.realm.clock())

    def _say(self, told: Told, due: Due, encrypter: FilterEncrypter, token: bytes) -> Generator[Said, None, Told]:
        """One tree's posts, counted once whatever happens until they are durable."""
        due = told.numbered(due, self.realm.clock()) if due.number == 0 else due
        if told.pending != due:
            self._own.save(replace(told, pending=due))
        filters = self._own.all()
        messages = [
            message
            for remove, numbers in ((True, due.remove), (False, due.add))
            for number in numbers
            for message in encrypter.encrypt_filter(self._compiled(filters[number].text)[1], remove=remove)
        ]
        what = Numbered(due.tree, messages, due.number, due.fresh)
        made = signed_posts(self._topic_id, self._identity, told.home, what, token)
        yield Said(told.home, made)
        told = told.after(due, len(made))
        self._own.save(told)
        return told

    def _forget(self, told: Told) -> Told:
        for number in told.ended:
            self._own.end(number)
        return replace(told, ending=told.ending - told.ended) if told.ended else told


def own_filters(realm: EntityRealm, state: RealmState, topic: str, name: str) -> ToldFilters:
    return ToldFilters(realm.paths.root / "wallets", name, state.topic(topic).id)


def homes_of(realm: EntityRealm, topic: str, name: str) -> list[str]:
    """Every broker where something may be for a subscriber, the oldest first, the current one last."""
    state = realm.state()
    known, at = own_filters(realm, state, topic, name).told().homes, state.overlay(topic).places.get(name)
    return [*(home for home in known if home != at), *([] if at is None else [at])]
