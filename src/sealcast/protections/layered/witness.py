"""The witness side of `layered`: brokers that cannot read are checked hop by hop, and numbers are all that they have.

What is public is read by anyone who has the files. How many rows a broker's table has, and which posts of filters it
refused, stands in its own log, which its key file opens: where that is not here, it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np

from sealcast.log.entry import REMOVED_ABOVE
from sealcast.log.ledger import LedgerReader
from sealcast.log.misrouted import MisroutedNotes
from sealcast.log.piece_reader import PieceReader, hop_reader
from sealcast.model.event import Position
from sealcast.model.protection import Layered
from sealcast.protections.due import first_left, records_due
from sealcast.protections.layered import trace
from sealcast.protections.layered.audit import TopicAudit, arriving, available
from sealcast.protections.layered.filters.intake import allowance_of
from sealcast.protections.layered.filters.table import TableLog
from sealcast.protections.layered.layering import layering_of
from sealcast.protections.layered.parties import Vantage
from sealcast.protections.layered.tree import Tree
from sealcast.protections.port import Audit, Explanation, Party, WitnessSide, broker_side
from sealcast.protections.steps import StepName
from sealcast.protections.witness import facts, mailboxes, past_keys
from sealcast.protections.witness.answer import WhyAnswer
from sealcast.protections.witness.facts import LedgerTally
from sealcast.protections.witness.mailboxes import Found, Ints, ReceivedDelivery
from sealcast.protections.witness.sides import Witness
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import BrokerRealm
from sealcast.trust.realm.state import RealmState
from sealcast.wire.hops import HopPiece

#: Stands for whoever publishes; no entity has such a name.
_ON_TOP: Final = "(publisher)"


class LayeredWitness(Witness[HopPiece]):
    def audits(self, realm: Realm, topic: str, *, by_reference: bool) -> Sequence[Audit]:
        return [TopicAudit(realm, topic)]

    def why(self, realm: Realm, topic: str, event: Position, subscriber: str) -> WhyAnswer:
        return trace.why(realm, topic, event, subscriber)

    # --- how it stands --------------------------------------------------------------------------------

    def brokers(self, state: RealmState, topic: str) -> Sequence[str]:
        return state.overlay(topic).downwards()

    def reader(self, realm: BrokerRealm, topic: str, broker: str) -> PieceReader[HopPiece]:
        return hop_reader(realm.journal(topic, broker, "hops"))

    def lags(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[HopPiece]) -> dict[str, int]:
        state, cursors = realm.state(), realm.paths.topic(topic, broker).hops
        names = state.overlay(topic).subscribers(broker)
        return mailboxes.lags(reader, mailboxes.cursors(cursors, dict.fromkeys(names, 0)), _found(state, names))

    def received(self, realm: BrokerRealm, topic: str, broker: str) -> Mapping[str, ReceivedDelivery]:
        state = realm.state()
        names = list(state.entities)
        with closing(self.reader(realm, topic, broker)) as reader:
            return mailboxes.received(reader, names, _found(state, names))

    def refusals(self, realm: BrokerRealm, topic: str) -> Iterator[Iterator[dict[str, Any]]]:
        yield from super().refusals(realm, topic)
        for node in self.brokers(realm.state(), topic):
            with closing(hop_reader(realm.journal(topic, node))) as admitted:
                yield facts.refusals(admitted, topic, node)
            yield _refused_posts(realm, topic, node)

    def describe(self, realm: BrokerRealm, topic: str, broker: str, reader: PieceReader[HopPiece]) -> dict[str, Any]:
        state, admitted = realm.state(), dict[str, Any]()
        overlay, tally = state.overlay(topic), LedgerTally.of(reader.ledger)
        parent = overlay.parents[broker]
        if parent is None:
            with LedgerReader(realm.journal(topic, broker)) as ledger:
                admitted = facts.admission(realm, topic, broker, ledger)
        return {
            "place": ", a root" if parent is None else f", below {parent!r}",
            "parent": parent,
            # Who wants what is not known: neither to the realm nor to this broker.
            "subscriptions": None,
            "authorised": sum(state.may_subscribe(topic, name) for name in overlay.subscribers(broker)),
            **admitted,
            "hops": {
                "batches": tally.batches,
                "last_batch_at": facts.moment(tally.last_us),
                "waiting_records": tally.waiting(available(realm, topic, broker)),
                "events": tally.counts["matched"],
                "deliveries": tally.counts["deliveries"],
                "encryptions": tally.counts["encryptions"],
                "rejected": tally.rejected,
                "per_second": tally.per_second("matched"),
                "removed_above": tally.counts[REMOVED_ABOVE],
            },
            "retention": _retention(realm, topic, broker),
            "filters": _filters(realm, topic, broker),
            "misrouted": sum(note.count for note in MisroutedNotes(realm.paths.topic(topic, broker).root).all()),
        }

    def rows(self, found: Mapping[str, Any]) -> list[tuple[str, object]]:
        hops, filters = found["hops"], found["filters"]
        rows = "" if filters["rows"] is None else f"{filters['rows']:,} rows, "
        waiting = f"{hops['waiting_records']:,} records of the broker above, {filters['waiting']:,} filter posts"
        told = [("misrouted", f"{found['misrouted']:,} events, as readers report: sealcast audit")]
        return [
            *(facts.admission_rows(found) if "frames" in found else ()),
            ("hop batches", facts.batches(hops)),
            ("waiting", waiting),
            ("handed on", "{events:,} events, {deliveries:,} of them to subscribers here".format(**hops)),
            ("refused here", facts.reasons(hops["rejected"])),
            ("table", f"{rows}version {filters['version']:,}; posts refused: {facts.reasons(filters['refused'])}"),
            ("subscribers", "{subscribers:,}, {authorised:,} may read".format(**found)),
            *(told if found["misrouted"] else ()),
            *_kept_longer(found["retention"]),
            *_removed_above(hops["removed_above"]),
        ]

    # --- who learns what ------------------------------------------------------------------------------

    def explain(self, state: RealmState, topic: str) -> Explanation:
        about, overlay = state.topic(topic), state.overlay(topic)
        layering = layering_of(state, topic)
        # Trees of publishers differ in who stands on top; a publisher that subscribes is in the others' trees.
        tree = Tree(_ON_TOP, overlay.parents_for(_ON_TOP), layering.layers)
        vantage = Vantage(tree, overlay.parents.keys(), overlay.places.keys(), padded=layering.padded)
        publisher, *others = vantage.parties()
        announced = len(state.publishers_of(topic))
        parties = [
            publisher._replace(who=f"a publisher ({announced} announced for epoch {about.epoch})"),
            *others,
            Party(
                "whoever reads the disk, backups or the network, without secrets/ and entities/",
                [
                    "what an eavesdropper on every link learns",
                    "the registry: names, public keys, rights, who stands where",
                ],
                [
                    "read filters, labels or payloads",
                    "alter anything unnoticed: frames are signed, ledgers are chained",
                ],
            ),
        ]
        trusted = (
            f"nobody with filters or events ({layering.layers} layers in {layering.group}, {len(overlay.parents)} "
            "nodes). Brokers are trusted to route honestly, and not to form one of the coalitions below"
        )
        live = [e.name for e in state.entities.values() if not e.revoked and e.name not in overlay.parents]
        able = sum(state.may_publish(topic, name) for name in live)
        left = [*_left(able, layering_of(state, topic)), past_keys.left(state, topic)]
        return Explanation(trusted, parties, left, vantage.coalitions())


WITNESS: Final[WitnessSide] = LayeredWitness()


def _found(state: RealmState, names: Sequence[str]) -> Found:
    """How much each of these finds in a hop piece."""
    numbers = {name: number for number, name in enumerate(names)}

    def found(piece: HopPiece, skip: Ints) -> tuple[Ints, Ints]:
        here = [(numbers[name], name) for name in piece.recipients if name in numbers]
        counts = [len(arriving(state, piece, name, int(skip[number]))) for number, name in here]
        return np.array([number for number, _ in here], np.int64), np.array(counts, np.int64)

    return found


def _filters(realm: BrokerRealm, topic: str, node: str) -> dict[str, Any]:
    state, count = realm.state(), 0
    if realm.carriers.overlay(state, topic, node) is not None or realm.paths.topic(topic, node).filter_posts.is_dir():
        with realm.carriers.posts(state, topic, node) as posts:
            count = posts.waiting()
    log = _table_log(realm, topic, node)
    if log is None:
        return {"waiting": count, "version": 0, "rows": None, "refused": None}
    with log:
        fold = log.fold()
        return {"waiting": count, "version": fold.version, "rows": len(fold), "refused": dict(fold.refused)}


def _retention(realm: BrokerRealm, topic: str, broker: str) -> dict[str, Any] | None:
    """Of what this broker admitted and handed on: what is due to be removed and still there, and which brokers have not
    taken it. None where nothing is removed, or another machine knows."""
    about = realm.state().topic(topic)
    if not about.parameters.pieces_end or not realm.paths.broker_key_of(broker).exists():
        return None
    waiting, brokers = 0, set[str]()
    for kind in broker_side(about.protection).steps:
        step = StepName(str(realm.paths.root), topic, broker, kind.step).open()
        if not step.paths.ledger.is_dir():
            continue
        due = records_due(about, step.ledger, realm.clock(), first_left(step.ledger))
        awaited = step.awaited(due)
        waiting += len(due)
        brokers.update(awaited.brokers if awaited is not None else ())
    return {"due_records": waiting, "awaits": sorted(brokers)}


def _kept_longer(found: Mapping[str, Any] | None) -> list[tuple[str, object]]:
    if found is None or not found["awaits"]:
        return []
    text = f"records due to be removed: {found['due_records']:,}; waits for the word of {', '.join(found['awaits'])}"
    return [("KEPT LONGER", text)]


def _removed_above(events: int) -> list[tuple[str, object]]:
    return [("MISSED", f"{events:,} events that a broker above removed before they were taken")] if events else []


def _refused_posts(realm: BrokerRealm, topic: str, node: str) -> Iterator[dict[str, Any]]:
    """Posts of filters that a broker refused, newest first."""
    log = _table_log(realm, topic, node)
    if log is None:
        return
    with log:
        told = [refusal for turn in log.turns(0) for refusal in turn.told]
    for refusal in reversed(told):
        yield {
            "at": None,
            "topic": topic,
            "broker": node,
            "partition": None,
            "offset": refusal.offset,
            "row": None,
            "reason": refusal.reason,
            "events": 0,
            "detail": f"a filter post of {refusal.sender or 'nobody known'}: {refusal.detail}",
        }


def _table_log(realm: BrokerRealm, topic: str, node: str) -> TableLog | None:
    return TableLog(realm, topic, realm.broker(node)) if realm.paths.broker_key_of(node).exists() else None


def _left(able: int, layering: Layered) -> list[str]:
    allowed = allowance_of(layering)
    return [
        f"{able} may publish, and subscribers send their filters into the tree of each that does. Any one of them is "
        "the publisher of the coalitions above, so grant that right to few.",
        f"A subscriber guesses by subscribing, a label a guess: {layering.reader_labels:,} at a time for each who "
        f"publishes, {layering.slot_labels:,} in one slot; {allowed.burst:,} at once and then {allowed.per_second} a "
        "second in all. Whoever has friends who subscribe has as many for each of them.",
        "A broker that knows from elsewhere what is in events learns what its rows are, as it would with a publisher's "
        "help.",
        "A process that runs several nodes has the keys of all of them. Run each with its own `sealcast run --node`, "
        "on a machine of its own; otherwise whoever runs it is `all brokers together` above.",
        "Encryption is deterministic: equality and frequency show after a layer came off, until the epoch ends.",
        "Anyone who can guess how often labels occur can guess which row is which. A new epoch does not change "
        "frequencies.",
        "An event has the same id and body everywhere, so anyone who watches several links can follow it.",
        "What a broker hands on lies in one directory for all below it. Anyone who reads there sees which events go to "
        "the others, and how many tokens each has.",
        "That an event opens does not say who wrote it. Subscribers verify the publisher's signature.",
        "Exponentiations take a time that depends on the key. Timing single ones takes access to the broker's machine.",
        "A subscriber keeps what it was sent. One whose right ended gets nothing from the next batch on.",
        "Whoever runs the authority can enrol brokers and subscribers of its own, and place them.",
    ]
