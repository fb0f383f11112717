"""A broker, which peels, looks up and relayers, and never sees a label. Pure: messages in, messages out.

Upwards (paper, section 4.2.2, for any r):
    (1) the last of the path shares the outermost layer with this node: take it off
    (2) SECURE TABLE BUILDING: if the row is there, count the path, and nothing goes on
    (3) else put on the layer shared with top(v), and send it to the parent with this node before the path, r ids long;
        right below the publisher, which never gets filters, nothing goes on

Downwards (section 4.3.2):
    (1) take off the layer shared with top(v)
    (2) SECURE LOOK-UP
    (3) for each path of the rows that were hit: put on the layer shared with its last node, on the payload key too, and
        send it to its first; a path of one is the subscriber itself

Aggregation at v_i happens for equal filters with equal v_(i-1) .. v_(i-r+1), so that the path sent on is equal, too,
and one copy upwards is enough. Whole conjunctions are aggregated, never their labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sealcast.errors import Rejected
from sealcast.primitives.groups import Element
from sealcast.protections.layered.layers import Layers
from sealcast.protections.layered.messages import FilterMessage, Notification, arranged
from sealcast.protections.layered.table import Conjunction, RoutingTable
from sealcast.protections.layered.tree import Path, TreePlace
from sealcast.wire.notifications import LayeredEntry


class RoutingNode:
    """One node in one tree."""

    def __init__(self, place: TreePlace, layers: Layers, table: RoutingTable | None = None) -> None:
        self.place = place
        self.layers = layers
        self.table = table if table is not None else RoutingTable()

    # --- upwards --------------------------------------------------------------------------------------------------

    def on_filter(self, sender: str, message: FilterMessage) -> list[FilterMessage]:
        """What goes to the parent because of what a child sent."""
        return self.change(self.peeled(sender, message), message.path, remove=message.remove)

    def peeled(self, sender: str, message: FilterMessage) -> Conjunction:
        """The row that a filter is about: for who keeps rows, so that no power is needed to have them again."""
        if message.path[0] != sender or len(message.path) > self.place.layers:
            raise Rejected(f"a filter from {sender} has another path, or one of more than {self.place.layers} hops")
        peel, last = self.layers.peel, message.path[-1]
        slots = [[peel(last, token) for token in slot] for slot in message.slots]
        row: Conjunction = arranged(slots)  # type: ignore[assignment]
        return row

    def change(self, row: Conjunction, path: Path, *, remove: bool, count: int = 1) -> list[FilterMessage]:
        """SECURE TABLE BUILDING with a row that was peeled: what goes to the parent because of it."""
        moved = self.table.remove(row, path, count) if remove else self.table.add(row, path)
        return self._onwards(row, path, remove) if moved else []

    def _onwards(self, row: Conjunction, path: Path, remove: bool) -> list[FilterMessage]:
        if self.place.parent == self.place.publisher:
            return []
        slots = arranged((self.put_on(token) for token in slot) for slot in row)
        return [FilterMessage(slots, self.extended(path), remove)]

    def put_on(self, token: Element) -> bytes:
        return self.layers.add(self.place.top, token)

    def extended(self, path: Path) -> Path:
        return (self.place.name, *path)[: self.place.layers]

    # --- downwards ------------------------------------------------------------------------------------------------

    def on_notification(self, message: Notification) -> dict[str, Notification]:
        """What goes to which child. Nothing: nobody below wants it."""
        onwards: dict[str, list[LayeredEntry]] = {}
        for entry in message.entries:
            if entry.final:
                continue  # for this node's own subscriber
            for path, tokens in self.secure_look_up(entry.tokens).items():
                onwards.setdefault(path[0], []).append(self._relayered(path, tokens, entry.key))
        return {child: Notification(message.event, tuple(entries), message.body) for child, entries in onwards.items()}

    def secure_look_up(self, tokens: Iterable[bytes]) -> Mapping[Path, set[Element]]:
        """The paths that an event takes, each with the tokens that some row behind it was hit by. No others go on: a
        node below learns nothing of labels that nobody behind it asked for."""
        peel, top = self.layers.peel, self.place.top  # asked for once: most tokens were peeled before
        peeled = {peel(top, token) for token in tokens}
        found: dict[Path, set[Element]] = {}
        for row in self.table.look_up(peeled):
            hit = {token for slot in row.slots for token in slot if token in peeled}
            for path in row.paths:
                found.setdefault(path, set()).update(hit)
        return found

    def take_off(self, token: bytes) -> Element:
        return self.layers.peel(self.place.top, token)

    def relayered(self, path: Path, entry: LayeredEntry) -> LayeredEntry:
        """What an entry becomes on one of its paths."""
        return self._relayered(path, self.secure_look_up(entry.tokens)[path], entry.key)

    def _relayered(self, path: Path, tokens: Iterable[Element], key: bytes) -> LayeredEntry:
        add, last = self.layers.add, self.relay_key(path)
        relayered = tuple(sorted(add(last, token) for token in tokens))
        return LayeredEntry(relayered, self.layers.swap(self.place.top, last, key), final=len(path) == 1)

    def relay_key(self, path: Path) -> str:
        return path[-1]
