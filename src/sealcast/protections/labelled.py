"""What protections share whose filters are labels and stay with their subscribers: costs, ids, and finding filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Final

from sealcast.errors import Misuse, NotFound
from sealcast.filters.check import check
from sealcast.filters.labels import label_filter
from sealcast.filters.parse import parse
from sealcast.model.names import NAME
from sealcast.model.schema import Schema
from sealcast.protections.own_filters import OwnFilter, given_before
from sealcast.protections.port import FilterCost
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

#: Of an id, in characters: the registry's names are no longer.
MAX_ID: Final = 64


class LabelledSide:
    """The part of their client sides that is about filters."""

    def vet(self, text: str, topic: Topic) -> None:
        self.cost(text, topic.schema)

    def cost(self, text: str, schema: Schema) -> FilterCost:
        checked = check(parse(text), schema)
        cost = label_filter(checked.condition, schema).cost
        facts = {"labels": cost.labels, "conjunctions": cost.conjunctions}
        # Labels know every value of a domain, and see more than whoever checks any filter does.
        never = ("no value of the domain can match",) if not cost.conjunctions and not checked.warnings else ()
        return FilterCost(facts, f"{cost.labels:,} label{'' if cost.labels == 1 else 's'}", never)


def new_ids(
    state: RealmState, name: str, given: Sequence[str | None], known: Iterable[str], longest: int = MAX_ID
) -> Iterator[str]:
    """Ids of new filters: those that were given, if they never were before, else the subscriber's name and the next
    number that is free. `known` are the ids of its own filters."""
    taken = {*known}

    def free(id: str) -> bool:
        return id not in taken and not given_before(state, id)

    # Whoever asks for an id gets it, wherever it stands in the list.
    for asked in (id for id in given if id is not None):
        if not NAME.fullmatch(asked) or len(asked) > longest:
            raise Misuse(f"{asked!r} is no id: letters, digits, dot, dash and underscore, at most {longest}")
        if not free(asked):
            raise Misuse(
                f"subscription id {asked!r} was given before", hint="ids are never given twice: choose another"
            )
        taken.add(asked)
    made = filter(free, (f"{name}-{number}" for number in count(1)))
    return (next(made) if id is None else id for id in given)


def named(present: Iterable[OwnFilter], ids: Iterable[str], topic: str, name: str) -> list[OwnFilter]:
    """The filters of these ids; NotFound for an id that none of them has."""
    by_id, found = {each.id: each for each in present}, []
    for id in dict.fromkeys(ids):
        if id not in by_id:
            raise NotFound(
                f"{name!r} has no subscription {id!r} on topic {topic!r}",
                hint=f"those it has: sealcast subscription list --topic {topic} --as {name}",
            )
        found.append(by_id[id])
    return found
