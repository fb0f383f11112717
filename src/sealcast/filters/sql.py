"""Tokens -> tree: the SQL selectors, by precedence climbing.

    OR  <  AND  <  NOT  <  = <> < <= > >= BETWEEN IN LIKE IS  <  + -  <  * / %  <  sign

Comparisons do not chain. A condition in parentheses may stand where a value may, and a value where a condition may:
`(a > 1) IS NULL`, `flag AND a = 1`. Only arithmetic never makes a condition: `3 + 5` is refused, as ActiveMQ does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sealcast.errors import FilterRejected
from sealcast.filters import patterns, tree
from sealcast.filters.calls import called, in_split, no_such_function
from sealcast.filters.cursor import TokenCursor
from sealcast.filters.lexer import Lexeme, tokens
from sealcast.filters.like import compile_like
from sealcast.filters.limits import MAX_IN_ITEMS
from sealcast.filters.numbers import parse_number
from sealcast.filters.patterns import path_levels
from sealcast.filters.timestamps import parse_timestamp
from sealcast.filters.tree import ArithmeticOp, Comparison, Condition, Function, Operand
from sealcast.filters.xpath import check_expression

Node = Condition | Operand

_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN = range(1, 8)

#: How tightly a token binds what stands left of it; a token not listed ends the expression.
_BINDING: Final = (
    {"OR": _OR, "AND": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}
    | {str(op): _COMPARISON for op in Comparison}
    | dict.fromkeys(("BETWEEN", "IN", "LIKE", "IS", "NOT"), _COMPARISON)
)
_COMPARISONS: Final = {str(op): op for op in Comparison}
_ARITHMETIC: Final = {str(op): op for op in ArithmeticOp}
_OPERANDS: Final = (
    tree.Literal,
    tree.Name,
    tree.Negate,
    tree.Plus,
    tree.Arithmetic,
    tree.Call,
    tree.Predicate,
    tree.Now,
)
_FUNCTIONS: Final = {str(function): function for function in Function}


def parse_sql(text: str, start: int = 0) -> Condition:
    """The tree of an SQL selector, or FilterRejected with the offset of the trouble."""
    return _Parser(tokens(text, start)).whole()


class _Parser(TokenCursor):
    __slots__ = ()

    def whole(self) -> Condition:
        if self._tokens[0].kind == "END":
            raise FilterRejected("syntax", "the filter is empty", at=0, hint="TRUE matches every event")
        condition = self._condition(self._expression(0))
        if self._tokens[self._next].kind != "END":
            self._unexpected("AND, OR or the end")
        return condition

    # --- expressions -----------------------------------------------------------------------------

    def _expression(self, floor: int) -> Node:
        """The longest expression from here whose operators all bind tighter than `floor`."""
        at = self._tokens[self._next].at
        left = self._prefix()
        while True:
            token = self._tokens[self._next]
            binding = _BINDING.get(token.kind, 0)
            if binding <= floor:
                return left
            if binding >= _SUM:
                self._next += 1
                right = self._operand(self._expression(binding))
                left = tree.Arithmetic(_ARITHMETIC[token.kind], self._operand(left), right, at=at)
            elif binding == _COMPARISON:
                left = self._comparison(self._operand(left), at)
                if _BINDING.get(self._tokens[self._next].kind) == _COMPARISON:
                    self._unexpected("AND, OR or the end", hint="comparisons do not chain; use parentheses")
            else:
                left = self._junction(self._condition(left), token.kind, binding, at)

    def _prefix(self) -> Node:
        token = self._tokens[self._next]
        self._next += 1
        kind = token.kind
        if kind == "WORD":
            return self._word(token)
        if kind == "NUMBER":
            return tree.Literal(parse_number(token.value, token.at), token.value, at=token.at)
        if kind == "STRING":
            return tree.Literal(token.value, at=token.at)
        if kind == "NAME":
            return tree.Name(token.value, at=token.at)
        if kind == "TRUE" or kind == "FALSE":
            return tree.Literal(kind == "TRUE", at=token.at)
        self._nest(token, 1)
        node: Node
        if kind == "(":
            node = self._expression(0)
            self._expect(")")
        elif kind == "NOT":
            inner = self._condition(self._expression(_NOT))
            node = tree.Not(inner, at=token.at, end=self._end())
        elif kind == "-" or kind == "+":
            node = self._signed(token)
        else:
            self._next -= 1
            hint = "NULL is asked for by IS NULL" if kind == "NULL" else None
            self._unexpected("a value or a condition", hint=hint)
        self._nest(token, -1)
        return node

    def _signed(self, sign: Lexeme) -> Operand:
        token = self._tokens[self._next]
        if token.kind == "NUMBER":
            self._next += 1
            number = parse_number(token.value, token.at)
            return tree.Literal(-number if sign.kind == "-" else number, sign.kind + token.value, at=sign.at)
        operand = self._operand(self._expression(_SIGN))
        return tree.Negate(operand, at=sign.at) if sign.kind == "-" else tree.Plus(operand, at=sign.at)

    def _junction(self, first: Condition, word: str, binding: int, at: int) -> Condition:
        """AND and OR take all their items at once; items that are the same junction in parentheses join in."""
        make: type[tree.And] | type[tree.Or] = tree.And if word == "AND" else tree.Or
        items = list(first.items) if isinstance(first, make) else [first]
        while self._tokens[self._next].kind == word:
            self._next += 1
            item = self._condition(self._expression(binding))
            if isinstance(item, make):
                items.extend(item.items)
            else:
                items.append(item)
        return make(tuple(items), at=at, end=self._end())

    # --- comparisons -----------------------------------------------------------------------------

    def _comparison(self, left: Operand, at: int) -> Condition:
        token = self._tokens[self._next]
        self._next += 1
        op = _COMPARISONS.get(token.kind)
        if op is not None:
            right = self._value()
            return tree.Compare(op, left, right, at=at, end=self._end())
        if token.kind == "IS":
            negated = self._take("NOT")
            self._expect("NULL")
            return tree.IsNull(left, negated, at=at, end=self._end())
        negated = token.kind == "NOT"
        if negated:
            token = self._tokens[self._next]
            self._next += 1
        if token.kind == "BETWEEN":
            low = self._value()
            self._expect("AND")
            high = self._value()
            return tree.Between(left, low, high, negated, at=at, end=self._end())
        if token.kind == "IN":
            items = self._items(token)
            return tree.In(left, items, negated, at=at, end=self._end())
        if token.kind == "LIKE":
            return self._like(left, negated, at)
        self._next -= 1
        self._unexpected("BETWEEN, IN or LIKE")

    def _items(self, word: Lexeme) -> tuple[Operand, ...]:
        self._expect("(")
        items = self._values()
        if len(items) > MAX_IN_ITEMS:
            raise FilterRejected("limit", f"an IN list has at most {MAX_IN_ITEMS} values", at=word.at)
        self._expect(")")
        return items

    def _values(self) -> tuple[Operand, ...]:
        items = [self._value()]
        while self._take(","):
            items.append(self._value())
        return tuple(items)

    def _like(self, left: Operand, negated: bool, at: int) -> tree.Like:
        pattern = self._string("a pattern in quotes")
        escape = self._string("one character in quotes") if self._take("ESCAPE") else None
        if escape is not None and len(escape.value) != 1:
            raise FilterRejected("syntax", "ESCAPE takes a string of one character", at=escape.at)
        like = tree.Like(left, pattern.value, None if escape is None else escape.value, negated, at=at, end=self._end())
        compile_like(like.pattern, like.escape, pattern.at)
        return like

    # --- words -----------------------------------------------------------------------------------

    def _word(self, token: Lexeme) -> Node:
        following = self._tokens[self._next].kind
        if following == "(":
            word = token.value.upper()
            call = _CALLS.get(word, _Parser._function)
            if call is _Parser._function and word not in _FUNCTIONS:
                raise no_such_function(token.value, token.at, _CALLS)
            self._next += 1
            self._nest(token, 1)
            node = call(self, token)
            self._nest(token, -1)
            self._expect(")")
            return node
        if following in ("WORD", "NAME") and token.value.upper() == "EXISTS":
            return self._exists(token)
        if following == "STRING":
            word = token.value.upper()
            if word == "TIMESTAMP":
                literal = self._string("")
                return tree.Literal(parse_timestamp(literal.value, literal.at), at=token.at)
            if word == "XPATH":
                literal = self._string("")
                return tree.XPath(check_expression(literal.value, literal.at), at=token.at, end=self._end())
        return tree.Name(token.value, at=token.at)

    def _utc(self, token: Lexeme) -> Node:
        return tree.Now(at=token.at)

    def _function(self, token: Lexeme) -> Node:
        return called(_FUNCTIONS[token.value.upper()], self._values(), token.at)

    def _exists(self, token: Lexeme) -> Node:
        return tree.IsNull(tree.Name(self._attribute(), at=token.at), negated=True, at=token.at, end=self._end())

    def _in_list(self, token: Lexeme) -> Node:
        """INLIST(SPLIT(text, ','), value), and INLIST(MAKELIST(a, b), value), which is IN."""
        maker = self._tokens[self._next]
        if maker.value.upper() not in ("SPLIT", "MAKELIST"):
            self._unexpected("SPLIT or MAKELIST", hint="INLIST(SPLIT(tags, ','), 'new')")
        self._next += 1
        self._expect("(")
        members = self._values()
        self._expect(")")
        self._expect(",")
        item = self._value()
        if maker.value.upper() == "MAKELIST":
            return tree.In(item, members, at=token.at, end=self._end() + 1)
        return in_split(members, item, maker.at, at=token.at, end=self._end() + 1)

    def _regex(self, token: Lexeme) -> Node:
        pattern, name = self._pattern_and_name()
        patterns.compile_regex(pattern.value, pattern.at)
        return tree.Regex(name, pattern.value, at=token.at, end=self._end() + 1)

    def _path(self, token: Lexeme) -> Node:
        pattern, name = self._pattern_and_name()
        return tree.PathMatch(name, path_levels(pattern.value, pattern.at), at=token.at, end=self._end() + 1)

    def _pattern_and_name(self) -> tuple[Lexeme, str]:
        pattern = self._string("a pattern in quotes")
        self._expect(",")
        return pattern, self._attribute()

    # --- small steps -----------------------------------------------------------------------------

    def _value(self) -> Operand:
        return self._operand(self._expression(_COMPARISON))

    def _operand(self, node: Node) -> Operand:
        return node if isinstance(node, _OPERANDS) else tree.Predicate(node, at=node.at)

    def _condition(self, node: Node) -> Condition:
        if not isinstance(node, _OPERANDS):
            return node
        if isinstance(node, tree.Predicate):
            return node.condition
        if isinstance(node, tree.Arithmetic | tree.Call):
            what = node.function if isinstance(node, tree.Call) else "arithmetic"
            hint = "compare it with something"
            raise FilterRejected("type", f"{what} gives a value, not a condition", at=node.at, hint=hint)
        return tree.Truth(node, at=node.at, end=self._end())


_CALLS: Final[dict[str, Callable[[_Parser, Lexeme], Node]]] = {
    "UTC": _Parser._utc,
    "REGEX": _Parser._regex,
    "PATH": _Parser._path,
    "EXISTS": _Parser._exists,
    "INLIST": _Parser._in_list,
}
