"""A hop as a kernel, without Spark or files: whole trees of them against the plaintext truth, and bad input."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from sealcast.lab.shikfa.net import Net
from sealcast.log.offsets import PinnedOffset
from sealcast.model.rejection import Reason
from sealcast.pipeline.sources import divide
from sealcast.primitives import merkle
from sealcast.primitives.sign import SigningKey
from sealcast.protections.layered.hop import hop
from sealcast.protections.layered.messages import Notification
from sealcast.protections.layered.node import HOPS, HopStep
from sealcast.protections.layered.piece import PieceBuilder
from sealcast.protections.layered.route import RoutingNode
from sealcast.protections.layered.tree import Tree, TreeId
from sealcast.protections.steps import Span, StepName
from sealcast.wire import frame, hops, notifications
from sealcast.wire.hops import FrameRef, HopPiece
from sealcast.wire.notifications import Core, LayeredEntry
from tests.schemes.layered_net import LABELS, TOY, random_filter, random_tree

TOPIC = bytes(16)
TREE = TreeId("P", 1, 0)


@dataclass
class Published:
    """What a publisher made of some events: at each root a frame, admitted."""

    net: Net
    signer: SigningKey = field(default_factory=SigningKey.generate)
    sequence: int = 0

    def frame(self, messages: Sequence[bytes]) -> tuple[bytes, bytes]:
        """A signed header over these messages, and the tree under it."""
        nodes = merkle.build(merkle.hash_messages(messages))
        header = frame.Header(
            topic=TOPIC,
            publisher=TREE.publisher,
            boot=bytes(16),
            sequence=self.sequence,
            count=len(messages),
            time=1,
            schema=bytes(32),
            epoch=TREE.epoch,
            root=merkle.root(nodes, len(messages)),
            token=frame.NO_TOKEN,
        )
        self.sequence += len(messages)
        return frame.encode_signed(header, self.signer.sign(frame.to_be_signed(header))), nodes

    def publish(self, events: Sequence[tuple[frozenset[bytes], bytes]]) -> dict[str, HopPiece]:
        net = self.net
        net.publisher.retarget(net.tree.targets(frozenset(net.wanted)))
        made: dict[str, list[Notification]] = {}
        for labels, payload in events:
            for root, message in net.publisher.encrypt_notification(labels, payload).items():
                made.setdefault(root, []).append(message)
        return {root: self.admitted(root, messages) for root, messages in made.items()}

    def admitted(self, root: str, sent: Sequence[Notification]) -> HopPiece:
        messages = [m for n in sent for m in (core_of(n), entries_of(n.entries))]
        signed, nodes = self.frame(messages)
        built = PieceBuilder()
        for row, message in enumerate(sent):
            path = b"".join(merkle.path(nodes, len(messages), 2 * row))
            at = built.event(FrameRef(0, 7, signed), row, TREE.generation, message.event, message.body, path)
            built.send(root, at, entries_of(message.entries))
        return piece_of(built, root)


def core_of(message: Notification) -> bytes:
    return notifications.encode_core(Core(message.event, TREE.generation, message.body))


def entries_of(entries: Iterable[LayeredEntry]) -> bytes:
    return notifications.encode_entries([(e.tokens, e.key, e.final) for e in entries])


def piece_of(built: PieceBuilder, node: str) -> HopPiece:
    piece = built.piece(topic=TOPIC, node=node, version=0, partition=0, first=0, end=1, rejected=(), counts={})
    return hops.parse(hops.encode(piece))  # as it would be read


def one_hop(piece: HopPiece, node: str, brokers: Mapping[TreeId, RoutingNode]) -> HopPiece:
    made = hop([piece], node, brokers, topic=TOPIC, version=3, partition=0, first=0, end=1)
    return hops.parse(hops.encode(made))


def flow(net: Net, admitted: Mapping[str, HopPiece]) -> dict[str, HopPiece]:
    """What every broker hands on, from the roots down."""
    made: dict[str, HopPiece] = {}
    for name in sorted(net.tree.names, key=net.tree.depth):
        above = admitted.get(name) if net.tree.depth(name) == 1 else made.get(net.tree.ancestors(name)[0])
        if above is not None:
            made[name] = one_hop(above, name, {TREE: net.brokers[name]})
    return made


def got_by(net: Net, name: str, piece: HopPiece, signer: SigningKey) -> list[bytes]:
    """What a subscriber opens of what its broker has for it, each verified against the publisher's signature."""
    opener, payloads = net.opener(name), []
    for row in piece.rows_for(name):
        event = piece.event_of(row)
        entries = notifications.parse_entries(piece.entries_of(row))
        if not any(entry.final for entry in entries):
            continue  # it is a broker, too, and this is for others
        about = frame.parse_signed(piece.frame(event).signed)
        assert signer.verify_key.verify(about.to_be_signed, about.signature)
        core = notifications.encode_core(Core(piece.event_id(event), int(piece.generation[event]), piece.body(event)))
        path = piece.path(event)
        hashes = [path[at : at + 32] for at in range(0, len(path), 32)]
        leaf, root = hashlib.sha256(core).digest(), about.header.root
        assert merkle.verify(root, leaf, 2 * int(piece.row[event]), about.header.count, hashes)
        payloads.append(opener.open(Notification(piece.event_id(event), entries, piece.body(event))))
    return payloads


def a_net(seed: int) -> Net:
    random = Random(seed)
    net = Net(random_tree(random), TOY, random)
    able = [name for name in net.tree.names if net.tree.depth(name) >= 2]
    for _ in range(12):
        net.subscribe(random.choice(able), random_filter(random))
    return net


@pytest.mark.parametrize("seed", range(12))
def test_hops_deliver_the_plaintext_truth(seed: int) -> None:
    net, random = a_net(seed), Random(seed + 1000)
    published = Published(net)
    events = [(frozenset(random.sample(LABELS, random.randint(1, 5))), str(n).encode()) for n in range(25)]
    made = flow(net, published.publish(events))
    for name in net.wanted:
        home = net.tree.ancestors(name)[0]
        got = got_by(net, name, made[home], published.signer) if home in made else []
        assert got == [payload for labels, payload in events if name in net.truth(labels)]
    finals = sum(name in net.truth(labels) for name in net.wanted for labels, _ in events)
    assert sum(piece.counts["deliveries"] for piece in made.values()) == finals


def test_the_same_input_makes_the_same_bytes() -> None:
    """In another process sets have another order; tables that rows came to in another order are that order's worst."""
    net = a_net(3)
    admitted = Published(net).publish([(frozenset(LABELS[:5]), os.urandom(5)) for _ in range(10)])
    for root, piece in admitted.items():
        broker = net.brokers[root]
        rows = [(row.slots, path, count) for row in broker.table.rows() for path, count in row.paths.items()]
        other = RoutingNode(broker.place, net.layers[root])
        for slots, path, count in reversed(rows):
            for _ in range(count):
                other.table.add(slots, path)
        first, second = (one_hop(piece, root, {TREE: each}) for each in (broker, other))
        assert hops.encode(first) == hops.encode(second) and len(first)


def test_a_bad_message_is_refused_alone() -> None:
    net = Net(Tree("P", {"a": "P", "b": "a", "s": "b"}), TOY, Random(1))
    wanted = random_filter(Random(5))
    net.subscribe("s", wanted)
    labels = frozenset(token for c in wanted.conjunctions for slot in c.slots for token in slot)
    piece = Published(net).publish([(labels, str(n).encode()) for n in range(6)])["a"]
    key = notifications.parse_entries(piece.entries_of(0))[0].key
    bad = {
        1: b"\0\xff",
        2: notifications.encode_entries([((bytes(len(key)),), key, False)]),  # zero is no element
        4: notifications.encode_entries([((), bytes(len(key) - 1) + b"\1", False)]),  # the identity
    }
    rebuilt = PieceBuilder()
    for event in range(len(piece)):
        at = rebuilt.event(
            piece.frame(event), int(piece.row[event]), 0, piece.event_id(event), piece.body(event), piece.path(event)
        )
        rebuilt.send("a", at, bad.get(event, piece.entries_of(event)))
    made = one_hop(piece_of(rebuilt, "a"), "a", {TREE: net.brokers["a"]})
    # An entry without tokens hits nothing, so that its key is never looked at.
    assert [rejection.position.row for rejection in made.rejected] == [1, 2]
    assert {rejection.reason for rejection in made.rejected} == {Reason.EVENT} and made.counts["rejected_event"] == 2
    assert made.row.tolist() == [0, 3, 5] and made.recipients == ("b",)


def test_an_event_of_a_tree_that_nobody_asked_in_goes_nowhere() -> None:
    net = a_net(4)
    for root, piece in Published(net).publish([(frozenset(LABELS), b"x")]).items():
        for tree in (TreeId("Q", 1, 0), TreeId("P", 2, 0), TreeId("P", 1, 1)):
            made = one_hop(piece, root, {tree: net.brokers[root]})
            assert not len(made) and not made.recipients and not made.rejected


def test_a_broker_takes_nothing_that_is_not_addressed_to_it() -> None:
    net = a_net(6)
    for piece in Published(net).publish([(frozenset(LABELS), b"x")]).values():
        made = one_hop(piece, "someone else", {TREE: net.brokers[piece.recipients[0]]})
        assert not len(made) and made.first_offset == 0 and made.end_offset == 1


def test_work_is_divided_by_bytes_and_in_order() -> None:
    pinned, random, least = PinnedOffset((9,), 1), Random(2), HopStep.min_task_bytes
    for tasks in (1, 2, 5):
        sized = [
            (Span(StepName("/r", "t", node, HOPS), 0, 3, 9, pinned), [random.randint(0, 100) for _ in range(6)])
            for node in ("a", "b", "c")
        ]
        size_of = {(s.name.broker, n): size for s, sizes in sized for n, size in enumerate(sizes, s.first)}
        divided = divide(sized, tasks, least)
        assert len(divided) <= tasks
        whole = [(s.name.broker, n) for task in divided for s in task for n in range(s.first, s.end)]
        assert whole == list(size_of)
        loads = [sum(size_of[s.name.broker, n] for s in task for n in range(s.first, s.end)) for task in divided]
        assert max(loads) <= sum(loads) / tasks + 100
    assert divide([], 4, least) == []
    assert [len(task) for task in divide(sized[:1], 1, least)] == [1]
