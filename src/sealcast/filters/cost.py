"""How deep a tree is and what evaluating it costs, counted without recursion: a hostile tree may be any depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sealcast.errors import FilterRejected
from sealcast.filters import tree
from sealcast.filters.limits import MAX_COST, MAX_DEPTH
from sealcast.filters.tree import Condition, Operand

#: Against one comparison, measured on short strings; what is not listed weighs 1.
WEIGHTS: Final[dict[type, int]] = {
    tree.Call: 4,
    tree.Like: 4,
    tree.PathMatch: 4,
    tree.InSplit: 8,
    tree.Regex: 16,
    tree.XPath: 256,
}


def children(node: Condition | Operand) -> tuple[Condition | Operand, ...]:
    """The nodes right below, in the order in which they are written."""
    match node:
        case tree.And(items) | tree.Or(items):
            return items
        case tree.Compare(left=left, right=right) | tree.Arithmetic(left=left, right=right):
            return (left, right)
        case tree.Between(operand, low, high):
            return (operand, low, high)
        case tree.In(operand, items):
            return (operand, *items)
        case tree.Call(_, arguments):
            return arguments
        case tree.InSplit(operand, _, item):
            return (operand, item)
        case tree.Predicate(condition):
            return (condition,)
        case tree.Literal() | tree.Name() | tree.Now() | tree.PathMatch() | tree.Regex() | tree.XPath():
            return ()
        case _:
            return (node.operand,)


def walk(node: Condition | Operand) -> Iterator[tuple[Condition | Operand, int]]:
    """Every node with its depth (the root's is 1), parents first."""
    pending: list[tuple[Condition | Operand, int]] = [(node, 1)]
    while pending:
        current, depth = pending.pop()
        yield current, depth
        pending.extend((child, depth + 1) for child in reversed(children(current)))


def check_cost(condition: Condition) -> None:
    """FilterRejected if the tree is too deep to walk or too dear to evaluate."""
    cost = 0
    for node, depth in walk(condition):
        if depth > MAX_DEPTH:
            raise FilterRejected("limit", f"a filter is at most {MAX_DEPTH} operators deep", at=node.at)
        cost += WEIGHTS.get(type(node), 1)
        if cost > MAX_COST:
            raise FilterRejected("limit", f"the filter costs more than {MAX_COST} comparisons to evaluate", at=node.at)


def names(condition: Condition) -> frozenset[str]:
    """The attributes that a filter reads."""
    return frozenset(
        node.name for node, _ in walk(condition) if isinstance(node, tree.Name | tree.PathMatch | tree.Regex)
    )
