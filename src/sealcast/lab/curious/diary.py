"""A curious broker: it does its work, writes down everything it sees, and thinks about it in the evening.

What it has: every message that it got and sent, its table, its own keys. Everything below is computed from that; the
truth stays with whoever asks how good a guess was. None of the guesses needs more than counting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations

from sealcast.lab.shikfa.net import Net
from sealcast.primitives.groups import Element
from sealcast.protections.layered.messages import Notification
from sealcast.protections.layered.table import Conjunction
from sealcast.protections.layered.tree import Path

Shape = tuple[int, ...]


class Diary:
    """What one broker saw of a day; `friends` lend it their keys."""

    def __init__(self, net: Net, name: str, friends: Sequence[str] = ()) -> None:
        self._node = net.brokers[name]
        self._layers = net.pooled((name, *friends))
        self._hash = net.hashes
        self._group = net.group
        self.filters = [(sent, m) for sent, m in net.filters() if name in (sent.sender, sent.receiver)]
        seen = [(sent, m) for sent, m in net.notifications() if name in (sent.sender, sent.receiver)]
        self.received = [m for sent, m in seen if sent.receiver == name]
        self.forwarded = [(sent.receiver, m) for sent, m in seen if sent.sender == name]

    # --- rows -----------------------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> dict[Conjunction, frozenset[Path]]:
        return {row.slots: frozenset(row.paths) for row in self._node.table.rows()}

    def equal_filters(self) -> set[frozenset[Path]]:
        """The paths whose filters are equal, since they are one row."""
        return {paths for paths in self.rows.values() if len(paths) > 1}

    def shapes(self) -> dict[Conjunction, Shape]:
        """How many labels the slots of a row have: how many attributes it asks about, and how ragged its ranges are."""
        return {row: tuple(sorted(map(len, row))) for row in self.rows}

    def tokens(self) -> set[Element]:
        return {token for row in self.rows for slot in row for token in slot}

    def named_by_dictionary(self, labels: Sequence[bytes]) -> dict[Element, bytes]:
        """Names the rows that its own keys open: each key on, each off, and any two of these."""
        exponents = [exponent for key in self._layers.values() for exponent in (key, key.inverse)]
        exponents += [one * other for one, other in combinations(exponents, 2)]
        wanted, found = self.tokens(), {}
        for label in labels:
            for exponent in exponents:
                element = self._group.power(self._hash(label), exponent)
                if element in wanted:
                    found[element] = label
        return found

    # --- events ---------------------------------------------------------------------------------------------------

    @cached_property
    def seen(self) -> dict[bytes, frozenset[Element]]:
        """The tokens of each event, without this broker's layer."""
        return {m.event: frozenset(self._peeled(m)) for m in self.received}

    def _peeled(self, message: Notification) -> Iterator[Element]:
        for entry in message.entries:
            if not entry.final:
                yield from map(self._node.take_off, entry.tokens)

    @cached_property
    def hits(self) -> dict[Conjunction, frozenset[bytes]]:
        """The events that hit each row."""
        return {
            row: frozenset(
                event for event, tokens in self.seen.items() if all(not tokens.isdisjoint(slot) for slot in row)
            )
            for row in self.rows
        }

    def label_counts(self) -> dict[bytes, int]:
        """How many labels each event has, told by the tokens of its fullest entry."""
        return {m.event: max(len(set(entry.tokens)) for entry in m.entries) for m in self.received}

    def label_counts_across_entries(self) -> dict[bytes, int]:
        """The same, without tokens that stand in several entries: under different layers, only filling would."""
        found = {}
        for m in self.received:
            in_entries = Counter(token for entry in m.entries for token in set(entry.tokens))
            found[m.event] = max(sum(in_entries[token] == 1 for token in set(entry.tokens)) for entry in m.entries)
        return found

    def label_counts_without_unique(self) -> dict[bytes, int]:
        """The same, without tokens that came once only: labels come again, filling might not."""
        often = Counter(token for m in self.received for token in {t for entry in m.entries for t in entry.tokens})
        return {m.event: max(sum(often[t] > 1 for t in set(e.tokens)) for e in m.entries) for m in self.received}

    def token_frequencies(self) -> Counter[Element]:
        """How many events each of its rows' tokens was in."""
        wanted = self.tokens()
        return Counter(token for tokens in self.seen.values() for token in tokens & wanted)

    def by_frequency(self, prior: Mapping[bytes, float]) -> dict[Element, bytes]:
        """The label of nearest frequency for each token: by whoever knows how frequent labels are in general, and
        which are asked for."""
        events = len(self.seen)
        return {
            token: min(prior, key=lambda label: abs(prior[label] - count / events))
            for token, count in self.token_frequencies().items()
        }

    # --- against what layers hide ---------------------------------------------------------------------------------

    def equal_by_value(self) -> set[frozenset[Conjunction]]:
        """Rows that came through different nodes, and have a token in common: what layers that differ must not leave.
        Of rows that came through the same r - 1 nodes, equal labels are equal tokens."""
        return {
            frozenset((one, other))
            for one, other in combinations(self.rows, 2)
            if self._ways(one).isdisjoint(self._ways(other))
            if {t for slot in one for t in slot} & {t for slot in other for t in slot}
        }

    def _ways(self, row: Conjunction) -> set[Path]:
        return {path[: self._node.place.layers - 1] for path in self.rows[row]}

    def equal_by_traffic(self, least: int = 5) -> set[frozenset[Conjunction]]:
        """Rows with nothing in common but that the very same events hit them."""
        return {
            frozenset((one, other))
            for one, other in combinations(self.rows, 2)
            if len(self.hits[one]) >= least and self.hits[one] == self.hits[other]
        }

    def linked(self, other: Diary, least: int = 5) -> set[tuple[Conjunction, Conjunction]]:
        """Rows of two brokers that the very same events hit: an event has one id and one body everywhere."""
        return {
            (one, two)
            for one in self.rows
            for two in other.rows
            if len(self.hits[one]) >= least and self.hits[one] == other.hits[two]
        }

    # --- over an epoch's end --------------------------------------------------------------------------------------

    def tokens_again(self, later: Diary) -> set[Element]:
        return (self.tokens() | set().union(*self.seen.values())) & (later.tokens() | set().union(*later.seen.values()))

    def rows_again(self, later: Diary) -> dict[Conjunction, Conjunction]:
        """Which row became which: by path and shape, and among those by how often events hit them."""

        def signs(diary: Diary) -> dict[tuple[frozenset[Path], Shape], list[Conjunction]]:
            found: dict[tuple[frozenset[Path], Shape], list[Conjunction]] = {}
            for row, paths in sorted(diary.rows.items(), key=lambda pair: -len(diary.hits[pair[0]])):
                found.setdefault((paths, diary.shapes()[row]), []).append(row)
            return found

        then, now = signs(self), signs(later)
        return {row: again for sign, rows in then.items() for row, again in zip(rows, now.get(sign, []), strict=False)}
