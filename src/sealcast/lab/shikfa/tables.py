"""`shikfa/table2` and `shikfa/table3`: what the paper prints beside what the nodes really sent and held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sealcast.errors import Bug
from sealcast.lab.report import Report, Told
from sealcast.lab.shikfa.network import Figure1
from sealcast.primitives.curve import CURVE
from sealcast.primitives.groups import Element, Group
from sealcast.primitives.modular import group14
from sealcast.protections.layered.tree import Path
from sealcast.wire.notifications import LayeredEntry

#: Table 2, left: the rows of B3. Right: the way of f from S1. Keys in order of their names, as a product has none.
ROWS: Final = {
    "R3-1": "f^(kB1B4) -> B1(S1),B1(S2)",
    "R3-2": "f^(kB2B4) -> B2(S3),B2(S4)",
    "R3-3": "f'^(kB2B4) -> B2(S5)",
}
WAY_UP: Final = {
    "S1": "f",
    "S1 -> B1": "[f^(kS1B1 kS1B3); S1]",
    "B1": "f^(kS1B3)",
    "B1 -> B3": "[f^(kB1B4 kS1B3); S1]",
    "B3": "f^(kB1B4)",
    "B3 -> B4": "[f^(kB1B4 kB3P); B1]",
    "B4": "f^(kB3P)",
}
#: Table 3, the way of an event to S2; the body is the same everywhere.
WAY_DOWN: Final = {
    "P": "[f; kP]",
    "P -> B4": "[f^(kB3P kB4P); kP^(kB3P kB4P)]",
    "B4": "[f^(kB3P); kP^(kB3P)]",
    "B4 -> B3": "[f^(kB1B4 kB3P); kP^(kB1B4 kB3P)]",
    "B3": "[f^(kB1B4); kP^(kB1B4)]",
    "B3 -> B1": "[f^(kB1B4 kS2B3); kP^(kB1B4 kS2B3)]",
    "B1": "[f^(kS2B3); kP^(kS2B3)]",
    "B1 -> S2": "[f^(kS2B1 kS2B3); kP^(kS2B1 kS2B3)]",
    "S2": "[f; kP]",
}
#: Sender, receiver, the path of the sender's row that leads to S2, and whose layer the receiver takes off.
_DOWN: Final = (
    ("P", "B4", ("B4", "B3"), "P"),
    ("B4", "B3", ("B3", "B1"), "P"),
    ("B3", "B1", ("B1", "S2"), "B4"),
    ("B1", "S2", ("S2",), ""),
)

Cell = tuple[str, str, bytes]


def table2(quick: bool, told: Told) -> Report:
    return _report("shikfa/table2", ROWS | WAY_UP, _table2, quick, told)


def table3(quick: bool, told: Told) -> Report:
    return _report("shikfa/table3", WAY_DOWN, _table3, quick, told)


def _report(
    name: str, printed: dict[str, str], cells: Callable[[Figure1], Iterator[Cell]], quick: bool, told: Told
) -> Report:
    groups: list[Group] = [CURVE] if quick else [CURVE, group14()]
    rows: list[dict[str, object]] = []
    for done, group in enumerate(groups):
        told(done, len(groups))
        for cell, computed, number in cells(Figure1(group)):
            rows.append(
                {
                    "cell": cell,
                    "group": group.name,
                    "printed": printed[cell],
                    "computed": computed,
                    "measured": number.hex()[:16] + "...",
                    "agrees": printed[cell] == computed,
                }
            )
    told(len(groups), len(groups))
    complete = len(rows) == len(printed) * len(groups)
    notes = (
        "computed: read off the numbers that nodes sent and hold, by a dictionary of all products of at most two keys",
        "measured: the number itself, the first eight bytes; keys are fresh in every run",
        "kP gets its name from what S1 opened; that the others have the same one is read off",
        "the text of section 4.2.2 stores SF in a row; the table, and we, what is left of it after a layer came off",
    )
    return Report(name, rows, complete and all(row["agrees"] for row in rows), notes)


# --- table 2 ------------------------------------------------------------------------------------------------------


def _table2(net: Figure1) -> Iterator[Cell]:
    rows = []
    for row in net.brokers["B3"].table.rows():
        element = row.slots[0][0]
        where = ",".join(f"{path[0]}({path[1]})" for path in sorted(row.paths))
        rows.append((f"{net.symbol(element)} -> {where}", bytes(element)))
    for i, (text, number) in enumerate(sorted(rows, key=lambda r: r[0].split(" -> ")[1]), 1):
        yield f"R3-{i}", text, number
    yield "S1", net.symbol(net.hashes(b"f")), bytes(net.hashes(b"f"))
    sender = "S1"
    for at in ("B1", "B3", "B4"):
        message = next(m for sent, m in net.filters() if (sent.sender, sent.receiver) == (sender, at))
        token = message.slots[0][0]
        # Beside the sender itself, the paper names whom the layer is shared with.
        yield f"{sender} -> {at}", f"[{net.read(token)}; {message.path[-1]}]", token
        peeled = net.layers[at].peel(message.path[-1], token)
        yield at, net.symbol(peeled), bytes(peeled)
        sender = at


# --- table 3 ------------------------------------------------------------------------------------------------------


def _table3(net: Figure1) -> Iterator[Cell]:
    first, second = net.hashes(b"f"), net.published()
    yield "P", f"[{net.symbol(first)}; {net.symbol(second)}]", bytes(first)
    before: LayeredEntry | None = None
    for sender, at, path, top in _DOWN:
        entry = _sent(net, sender, at, path, before)
        yield f"{sender} -> {at}", f"[{net.read(entry.tokens[0])}; {net.read(entry.key)}]", entry.tokens[0]
        if at == "S2":
            first, second = (_off(net, token, "B1", "B3") for token in (entry.tokens[0], entry.key))
        else:
            first, second = (net.layers[at].peel(top, token) for token in (entry.tokens[0], entry.key))
        yield at, f"[{net.symbol(first)}; {net.symbol(second)}]", bytes(first)
        before = entry


def _off(net: Figure1, token: bytes, *ancestors: str) -> Element:
    element = net.group.decode(token)
    for ancestor in ancestors:
        element = net.group.power(element, net.keys["S2", ancestor].inverse)
    return element


def _sent(net: Figure1, sender: str, at: str, path: Path, before: LayeredEntry | None) -> LayeredEntry:
    """Of the entries on a link, the one that the sender made for a path, out of what it had got itself.

    Chosen by the path alone, never by what it should look like: the table is what is being checked."""
    found = [m for sent, m in net.notifications() if (sent.sender, sent.receiver) == (sender, at)]
    entries = [entry for message in found for entry in message.entries]
    if before is None:
        (only,) = entries
        return only
    made = net.brokers[sender].relayered(path, before)
    if made not in entries:
        raise Bug(f"{sender} did not send {at} what its table says")
    return made
