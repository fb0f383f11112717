"""Credentials of a topic: what publishers, subscribers and the key server agree on before anything is encrypted.

    an event        in each space its labels by position; ciphertexts are made for all of them
    a conjunction   in each space some labels, any of which will do: one subscription, with keys bound together
    OR              several subscriptions, whose keys cannot be mixed
    a publisher     in each space the labels that its events lie below: what it may publish (its advertisement)

A filter that asks nothing of a space has the root of that very space there. One label for "anything anywhere" would let
a subscriber step over what it was given (paper 003, section 4.3, and spec A.3).

All of it is exact: `matches` says of every event what the filter's own evaluation says, or the filter is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from sealcast.errors import CannotOpen, EventRejected, FilterRejected, Misuse
from sealcast.filters.labels import Conjunction, StringPlan, label_filter, naming
from sealcast.filters.tree import Condition
from sealcast.model.schema import Schema, Type, Value
from sealcast.protections.attribute.joint import JointSpace, PlaceRange
from sealcast.protections.attribute.spaces import (
    CredentialSpace,
    EndingSpace,
    Label,
    NumberSpace,
    Positioned,
    TextSpace,
    ending_name,
)

#: By the name of a space: an event's labels, by position.
EventLabels = Mapping[str, Positioned]
#: By the name of a space: labels of which an event must have one.
WantedLabels = Mapping[str, tuple[Label, ...]]
#: By the name of a space: one label.
UsedLabels = Mapping[str, Label]

#: Values of an attribute whose labels are kept: values repeat far more than they differ.
_KEPT: Final = 4_096


class LabelCounts(NamedTuple):
    """What a filter and an event take: a filter's subscriptions and their labels, an event's ciphertexts."""

    subscriptions: int
    labels: int
    positions: int


class EventSpace:
    """The spaces of a schema, in its order: those of each attribute, or one for all numbers together (`joint`)."""

    def __init__(self, schema: Schema, plan: StringPlan | None = None, *, joint: bool = False) -> None:
        self.schema = schema
        self.plan = plan if plan is not None else StringPlan()
        self.joint = JointSpace(tuple(_numbers(schema))) if joint and any(_numbers(schema)) else None
        self._labels_of = {space.name: _remembering(space) for space in self.spaces.values()}
        self._position_of = {space.name: lru_cache(_KEPT)(space.position) for space in self.spaces.values()}

    @cached_property
    def spaces(self) -> Mapping[str, CredentialSpace]:
        """By name."""
        found: list[CredentialSpace] = [] if self.joint is None else [self.joint]
        for attribute in self.schema.attributes:
            if attribute.type is not Type.STRING:
                found += [NumberSpace(attribute)] if self.joint is None else []
                continue
            found.append(TextSpace(attribute, self.plan))
            if self.plan.suffix:
                found.append(EndingSpace(attribute, self.plan))
        return {space.name: space for space in found}

    @property
    def positions(self) -> int:
        """How many labels, or random things in their place, every event has."""
        return sum(space.positions for space in self.spaces.values())

    @cached_property
    def everything(self) -> WantedLabels:
        """What matches every event."""
        return {name: (space.root,) for name, space in self.spaces.items()}

    # --- events -----------------------------------------------------------------------------------------------------

    def event(self, values: Mapping[str, Value]) -> EventLabels:
        """An event's labels; EventRejected for a value outside its domain."""
        return {name: self._labels_of[name](*map(values.get, space.attributes)) for name, space in self.spaces.items()}

    # --- filters ----------------------------------------------------------------------------------------------------

    def subscriptions(self, condition: Condition) -> tuple[WantedLabels, ...]:
        """A checked filter as subscriptions; none for one that no event of the schema matches. FilterRejected for what
        labels cannot say, or not within their limits."""
        compiled = label_filter(condition, self.schema, self.plan)
        made = (self._wanted(conjunction, condition.at) for conjunction in compiled.conjunctions)
        return tuple(wanted for wanted in made if all(wanted.values()))

    def advertisement(self, condition: Condition) -> WantedLabels:
        """What a publisher may publish. It is one conjunction, since keys of publishers are not bound together: whoever
        had two could use the labels of one with those of the other."""
        found = self.subscriptions(condition)
        if len(found) != 1:
            raise FilterRejected(
                "inexpressible",
                "what a publisher may publish must be one conjunction"
                if found
                else "no event of this schema is what this publisher may publish",
                at=condition.at,
                hint="OR and IN of one attribute are one conjunction; for others, enrol a publisher for each",
            )
        return found[0]

    def counts(self, condition: Condition) -> LabelCounts:
        """What a filter takes in this form of spaces."""
        found = self.subscriptions(condition)
        return LabelCounts(
            len(found), sum(len(labels) for wanted in found for labels in wanted.values()), self.positions
        )

    # --- what holds what --------------------------------------------------------------------------------------------

    def position(self, space: str, label: Label) -> int:
        """Misuse for a label that is none of that space: nothing that was read is believed to be one."""
        found = self._position_of[space](label) if space in self.spaces else -1
        if found < 0:
            raise Misuse(f"no event of this schema has such a label in the space {space!r}")
        return found

    def checked(self, wanted: WantedLabels) -> WantedLabels:
        """Labels that somebody else stated, if they are some of each space of this schema; Misuse if not."""
        if wanted.keys() != self.spaces.keys():
            raise Misuse(f"labels are stated for each of the spaces {', '.join(self.spaces)}, and for no other")
        for space, labels in wanted.items():
            if not labels or len(set(labels)) != len(labels):
                raise Misuse(f"the space {space!r} has labels, and none of them twice")
            for label in labels:
                self.position(space, label)
        return wanted

    def matches(self, wanted: WantedLabels, event: EventLabels) -> bool:
        """What the scheme decides by decrypting: whether in every space the event has one of the labels."""
        return all(
            any(event[space][self.position(space, label)] == label for label in labels)
            for space, labels in wanted.items()
        )

    def signing(self, wanted: WantedLabels, event: EventLabels) -> UsedLabels:
        """The labels that a publisher signs an event with; EventRejected for an event that it may not publish."""
        return {space: self._held(space, labels, event) for space, labels in wanted.items()}

    def verify(self, values: Mapping[str, Value], used: UsedLabels, whose: str) -> None:
        """CannotOpen unless every value of an opened event lies below the label that was used for it (spec A.1): what
        a ciphertext was made for is the publisher's word, what stands inside is another."""
        if used.keys() != self.spaces.keys():
            raise CannotOpen(f"{whose} is not for the attributes of this event")
        event = self.event(values)
        for name, space in self.spaces.items():
            position = self._position_of[name](used[name])
            if position < 0 or event[name][position] != used[name]:
                raise CannotOpen(f"{whose} does not cover the value of {_named(space)} inside the event")

    # --- parts ------------------------------------------------------------------------------------------------------

    def _held(self, space: str, labels: Iterable[Label], event: EventLabels) -> Label:
        found = next((label for label in labels if event[space][self.position(space, label)] == label), None)
        if found is None:
            about = self.spaces[space]
            raise EventRejected(
                f"this publisher may not publish an event with this value of {_named(about)}",
                attribute=about.attributes[0],
                hint="the key server knows what it may publish",
            )
        return found

    def _wanted(self, conjunction: Conjunction, at: int) -> dict[str, tuple[Label, ...]]:
        wanted, ranges = dict(self.everything), dict[str, list[PlaceRange]]()
        for slot in conjunction.slots:
            attribute, kind = naming.parts(slot[0])
            if kind == naming.ROOT:
                continue  # it asks for nothing
            if self.joint is not None and attribute in self.joint.attributes:
                ranges[attribute] = self.joint.ranges(attribute, slot)
                continue
            space = self.spaces[ending_name(attribute) if kind == naming.SUFFIX else attribute]
            wanted[space.name] = tuple(self._carried(space, slot, at))
        if self.joint is not None and ranges:
            box = [ranges.get(attribute) for attribute in self.joint.attributes]
            wanted[self.joint.name] = tuple(self.joint.cover(box, at))
        return wanted

    def _carried(self, space: CredentialSpace, slot: Iterable[Label], at: int) -> Iterator[Label]:
        """Of a slot, the labels that some event may have; FilterRejected for one that lies deeper than events go."""
        for label in slot:
            if isinstance(space, TextSpace) and space.longer(label):
                continue  # no text of this attribute is that long
            if self._position_of[space.name](label) < 0:
                raise FilterRejected(
                    "limit", _too_deep(space), at=at, hint="texts can be compared with = and IN at any length"
                )
            yield label


def _numbers(schema: Schema) -> Iterator[NumberSpace]:
    return (NumberSpace(attribute) for attribute in schema.attributes if attribute.type is not Type.STRING)


def _remembering(space: CredentialSpace) -> Callable[..., Positioned]:
    """The labels of a space by the values of its attributes, which have types, so that equal ones are the same."""

    @lru_cache(_KEPT)
    def labels(*values: Value) -> Positioned:
        return space.labels(dict(zip(space.attributes, values, strict=True)))

    return labels


def _named(space: CredentialSpace) -> str:
    return " or ".join(map(repr, space.attributes))


def _too_deep(space: CredentialSpace) -> str:
    deepest = space.digits if isinstance(space, TextSpace) else 0
    return (
        f"attribute {space.attributes[0]!r}: this compares more of a text than events have labels for, which are for "
        f"{deepest // 2} characters in ASCII or {deepest // 7} in other scripts"
    )
