"""Which part of a filter made it true, false or unknown of an event.

A part is decisive if changing its answer could have changed the whole: of a false AND those of its parts that are
false, of a true one all of them; of a true OR those that are true; of an unknown one those that are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sealcast.filters.cost import names
from sealcast.filters.evaluate import FilterInput, holds
from sealcast.filters.tree import And, Condition, Not, Or, Value
from sealcast.filters.unparse import unparse, unparse_value

_SHOWN_VALUES = 6
_SHOWN_LENGTH = 160


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    """One condition of the filter, its answer, and what it read."""

    #: The condition in the normal spelling of `unparse`.
    text: str
    #: Where it stands in the filter's own text.
    at: int
    end: int
    result: bool | None
    decisive: bool
    #: The attributes that a condition without parts read; absent ones are None.
    values: tuple[tuple[str, Value], ...]
    parts: tuple[ExplainedPart, ...]

    def decisions(self) -> Iterator[ExplainedPart]:
        """The smallest parts that decided, in the order in which they stand."""
        if not self.decisive:
            return
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.decisions()

    def render(self) -> list[str]:
        """As lines for people: a tree, `*` before what decided, and what the attributes were."""
        return list(_lines(self, "", ""))


def explain(
    condition: Condition, attributes: Mapping[str, Value], payload: bytes | None = None, *, now: int | None = None
) -> ExplainedPart:
    """The answer of `evaluate.evaluate`, taken apart."""
    return _part(condition, FilterInput(attributes, payload, now), decisive=True)


def _part(condition: Condition, event: FilterInput, decisive: bool) -> ExplainedPart:
    result = holds(condition, event)
    inner: tuple[Condition, ...] = ()
    if isinstance(condition, And | Or):
        inner = condition.items
    elif isinstance(condition, Not):
        inner = (condition.operand,)
    # An AND that is true, and an OR that is false, takes all its parts; otherwise those that agree with it decide.
    everyone = isinstance(condition, Not) or result is isinstance(condition, And)
    parts = tuple(_part(item, event, decisive and (everyone or holds(item, event) is result)) for item in inner)
    values = () if inner else tuple((name, event.attributes.get(name)) for name in sorted(names(condition)))
    return ExplainedPart(unparse(condition), condition.at, condition.end, result, decisive, values, parts)


def _lines(part: ExplainedPart, first: str, rest: str) -> Iterator[str]:
    answer = {True: "true", False: "false", None: "unknown"}[part.result]
    text = part.text if len(part.text) <= _SHOWN_LENGTH else part.text[: _SHOWN_LENGTH - 3] + "..."
    yield f"{first}{'*' if part.decisive else ' '} {answer:<7}  {text}{_read(part)}"
    for i, inner in enumerate(part.parts):
        last = i == len(part.parts) - 1
        yield from _lines(inner, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _read(part: ExplainedPart) -> str:
    if not part.values:
        return "   (payload)" if part.text.startswith("XPATH") else ""
    shown = [f"{name} is {_short(value)}" for name, value in part.values[:_SHOWN_VALUES]]
    if len(part.values) > _SHOWN_VALUES:
        shown.append(f"and {len(part.values) - _SHOWN_VALUES} more")
    return f"   ({', '.join(shown)})"


def _short(value: Value) -> str:
    text = unparse_value(value)
    return text if len(text) <= 60 else text[:57] + "..."
