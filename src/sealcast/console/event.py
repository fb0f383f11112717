"""An event: why it did or did not reach a subscriber, clause by clause, and its proof, verified in front of you.

An administrator sees what was decided and which clause decided. What the attributes were is shown to the subscriber
that got the event, and to nobody else. Who came over a gateway is told about its own events, and why only of those that
it got: the clause that decided would tell what was in an event that it must not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from sealcast.broker.opening import open_frames
from sealcast.broker.rulings import received_of
from sealcast.clients.realm import Realm
from sealcast.console import drawing
from sealcast.console.asked import FormFields
from sealcast.console.html import Child, Markup, element, join
from sealcast.console.pages import PageLink, badge, pairs, section, table
from sealcast.console.viewer import Viewer
from sealcast.errors import CannotOpen, Misuse, NotFound, SealcastError
from sealcast.filters.explain import ExplainedPart
from sealcast.filters.unparse import unparse_value
from sealcast.log.offsets import AS_STAMPED
from sealcast.model.event import Position
from sealcast.model.stages import Ruled
from sealcast.primitives import merkle
from sealcast.primitives.sign import VerifyKey
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.port import witness_side
from sealcast.protections.steps import StepName
from sealcast.protections.witness.answer import Verdict, WhyAnswer
from sealcast.wire import frame

#: Filters of one subscriber that are drawn.
SHOWN: Final = 12
#: Newest events that one can choose from.
OFFERED: Final = 12
_ANSWER: Final = {True: ("true", "good"), False: ("false", "bad"), None: ("unknown", "wait")}


class ShownProof(NamedTuple):
    """What lets anybody verify one event of a frame: its leaf, the way up to the signed root, and who signed."""

    publisher: str
    leaf: bytes
    #: From the leaf upwards: the neighbour, whether it stands on the left, and what both hash to.
    steps: tuple[tuple[bytes, bool, bytes], ...]
    root: bytes
    events: int
    signature_good: bool

    @property
    def path_good(self) -> bool:
        return (self.steps[-1][2] if self.steps else self.leaf) == self.root


def shown(realm: Realm, asked: FormFields, viewer: Viewer, link: PageLink) -> Markup:
    state = realm.state()
    topics = viewer.topics(state)
    topic = asked("topic") or (topics[0] if topics else "")
    if topic and topic not in topics:
        raise NotFound(f"there is no topic {topic!r} that you may see")
    form = _form(realm, topics, topic, asked, viewer, link)
    if not (topic and asked("event") and asked("subscriber")):
        return form
    position, subscriber = Position.parse(asked("event").removeprefix(f"{topic}/")), asked("subscriber")
    if not viewer.may_ask_about(subscriber):
        raise Misuse("you can ask about your own events only")
    answer = witness_side(state.topic(topic).protection).why(realm, topic, position, subscriber)
    if answer.verdict is not Verdict.DELIVERED and not viewer.everything:
        return join(form, _withheld(answer))
    return join(form, _why(answer, viewer), _proof(realm, topic, position, answer))


def _form(realm: Realm, topics: list[str], topic: str, asked: FormFields, viewer: Viewer, link: PageLink) -> Markup:
    offered = list(newest(realm, topic))[:OFFERED] if topic else []
    own = [viewer.own] if viewer.own is not None else []
    who = own if not viewer.everything else list(realm.state().slots_of(topic)) if topic else []
    form = element(
        "form",
        element(
            "div",
            element("label", "Topic", element("select", *_options(topics, topic), name="topic")),
            element(
                "label",
                "Event (partition/offset/row)",
                element("input", name="event", value=asked("event"), list="newest", required=True),
            ),
            element("datalist", *(element("option", value=each) for each in offered), id="newest"),
            element("label", "Subscriber", element("input", name="subscriber", value=asked("subscriber"), list="who")),
            element("datalist", *(element("option", value=each) for each in who[:200]), id="who"),
            element("button", "Why?"),
            class_="row",
        ),
        action=link("event"),
        method="get",
    )
    first = who[0] if who else ""
    ways = [
        element(
            "li",
            element(
                "a", each, href=link.asking("event", topic=topic, event=each, subscriber=asked("subscriber") or first)
            ),
        )
        for each in offered
    ]
    newest_shown = (
        join(element("h3", "The newest events"), element("ul", *ways, class_="chips")) if ways and who else None
    )
    return section("Which event", form, newest_shown)


def _options(names: list[str], chosen: str) -> list[Markup]:
    return [element("option", name, value=name, selected=name == chosen) for name in names]


def newest(realm: Realm, topic: str) -> Iterator[str]:
    """The newest events in the logs of brokers that are here, by their names. Nothing is opened."""
    for broker in realm.state().brokers():
        if not realm.paths.topic(topic, broker).frames_root.is_dir():
            continue
        with realm.frames(topic, broker, read_only=True) as log:
            for partition in range(log.partitions):
                part = log.partition(partition)
                first = max(part.start(), part.end() - OFFERED)
                for record in reversed(list(part.read(first)) if part.end() > first else []):
                    try:
                        count = frame.parse(record.data).header.count
                    except SealcastError:
                        continue  # no frame: admission refuses it
                    each = realm.state().topic(topic).protection.messages_per_event
                    yield from (f"{partition}/{record.offset}/{row}" for row in range(min(3, count // each)))


# --- why --------------------------------------------------------------------------------------------------


def _withheld(answer: WhyAnswer) -> Markup:
    words = f"{answer.topic}/{answer.event} did not reach {answer.subscriber}."
    todo = "Why would tell what was in it. Ask whoever administers the realm: "
    said = element("code", f"sealcast why {answer.topic}/{answer.event} {answer.subscriber}")
    return section("It did not reach you", element("p", words), element("p", todo, said))


def _why(answer: WhyAnswer, viewer: Viewer) -> Markup:
    good = answer.verdict is Verdict.DELIVERED
    verdict = badge(str(answer.verdict).replace("-", " "), "good" if good else "bad")
    reads = good and viewer.reader == answer.subscriber
    facts: list[tuple[str, Child]] = [
        ("published", f"by {answer.publisher}, number {answer.sequence}, epoch {answer.epoch}")
    ]
    if answer.publisher is None:
        facts = []
    if answer.batch is not None:
        batch = answer.batch
        facts.append(
            ("decided", f"record {batch.record} of the ledger of {batch.broker}, registry version {batch.version}")
        )
    for hop in answer.hops:
        facts.append((hop.broker, f"handed it on to {hop.handed_on_to}, by version {hop.table_version} of its table"))
    if answer.refused is not None:
        facts.append(("refused", f"{answer.refused.reason}: {answer.refused.detail}"))
    if answer.sealing is not None:
        facts.append(
            (
                "sealed",
                f"{_counted(answer.sealing.encryptions, 'encryption')}, {_counted(answer.sealing.readers, 'reader')}",
            )
        )
    trees = [
        element(
            "article",
            element("h3", f"Subscription {each.id}"),
            element("ul", _clause(each.part, reads), class_="clauses"),
        )
        for each in answer.interests[:SHOWN]
    ]
    return section(
        f"Why {answer.topic}/{answer.event} reached {answer.subscriber}, or not",
        element("p", verdict, f" {answer.because}"),
        drawing.path(_steps(answer)),
        pairs(facts),
        *trees,
        element("p", "What the attributes were is for the subscriber that got them.", class_="lead")
        if trees and not reads
        else None,
        *(element("p", note) for note in answer.notes),
    )


def _steps(answer: WhyAnswer) -> list[drawing.PathStep]:
    """The seven steps, as far as the event came."""
    matched = any(each.part.result is True for each in answer.interests)
    delivered = answer.verdict is Verdict.DELIVERED
    decided = answer.batch is not None or bool(answer.hops)
    states: list[tuple[str, bool | None]] = [
        ("publish", True),
        ("admit", None if not decided and answer.refused is None else answer.refused is None),
        ("match", None if not answer.interests and not delivered else matched or delivered),
        ("group", None if answer.authorised is None and not delivered else bool(answer.authorised) or delivered),
        ("seal", None if not decided else answer.sealing is not None or delivered),
        ("deliver", None if not decided else delivered),
        ("open", True if delivered else None),
    ]
    words = {True: ("✓", "", ""), False: ("✗", "bad", "ended here"), None: ("·", "", "not known")}
    return [drawing.PathStep(name, words[went][0], "", words[went][2], words[went][1]) for name, went in states]


def _clause(part: ExplainedPart, reads: bool) -> Markup:
    """A condition with its answer; those that decided are marked."""
    word, tone = _ANSWER[part.result]
    values = ", ".join(f"{name} is {unparse_value(value)}" for name, value in part.values) if reads else ""
    return element(
        "li",
        badge(word, tone),
        " ",
        element("code", part.text),
        element("em", f" {values}") if values else None,
        element("span", " decided", class_="decided") if part.decisive and not part.parts else None,
        element("ul", *(_clause(inner, reads) for inner in part.parts)) if part.parts else None,
        class_="decisive" if part.decisive else None,
    )


# --- its proof --------------------------------------------------------------------------------------------


def _proof(realm: Realm, topic: str, position: Position, answer: WhyAnswer) -> Markup:
    title = "Its proof"
    try:
        proof = proof_of(realm, topic, position, answer)
    except (NotFound, CannotOpen, Misuse) as error:
        return section(title, element("p", f"It cannot be shown here: {error.message}", class_="empty"))
    if proof is None:
        words = "Its frame is not in a log of a broker on this machine, or is no longer kept."
        return section(title, element("p", words, class_="empty"))
    rows: list[tuple[Child, ...]] = [("leaf", "-", element("code", proof.leaf.hex()))]
    for number, (sibling, left, parent) in enumerate(proof.steps, 1):
        side = "left" if left else "right"
        rows.append(
            (f"step {number}", join(f"with its {side} neighbour ", _short(sibling)), element("code", parent.hex()))
        )
    rows.append(("root, as signed", "-", element("code", proof.root.hex())))
    checks: list[tuple[str, Child]] = [
        ("the path leads to the signed root", _good(proof.path_good)),
        (f"the root is signed by {proof.publisher}", _good(proof.signature_good)),
        ("events under this signature", proof.events),
    ]
    return section(
        title,
        pairs(checks),
        table("From the event to the signature, hashed again just now", ("what", "joined", "SHA-256"), rows, ""),
        lead="One signature covers all events of a frame. This path proves that the event is one of them.",
    )


def proof_of(realm: Realm, topic: str, position: Position, answer: WhyAnswer) -> ShownProof | None:
    """Computed from the frame in a broker's log, with that broker's key; None where there is no such frame here."""
    state = realm.state()
    if state.topic(topic).protection.peers:
        return None
    version = answer.batch.version if answer.batch is not None else state.version
    for broker in state.brokers():
        if not realm.paths.topic(topic, broker).frames_root.is_dir():
            continue
        with realm.frames(topic, broker, read_only=True) as log:
            if position.partition >= log.partitions:
                continue
            part = log.partition(position.partition)
            if not part.start() <= position.offset < part.end():
                continue
            (record,) = part.read(position.offset, position.offset + 1)
        step = FramesStep.of(StepName(str(realm.paths.root), topic, broker))
        ruled = Ruled(received_of(position.partition, [record], AS_STAMPED), np.zeros(1, np.uint8))
        opened = open_frames(ruled, step.gate(version))
        if not opened.proofs:
            return None
        row = position.row * state.topic(topic).protection.messages_per_event
        if not 0 <= row < len(opened.messages):
            return None
        leaf = hashlib.sha256(opened.messages[row]).digest()
        found = opened.proofs[0]
        signed = frame.parse_signed(found.signed)
        key = VerifyKey(state.entity(signed.header.publisher).verify_key)
        steps = tuple(_way_up(leaf, row, found.count, merkle.path(found.nodes, found.count, row)))
        good = key.verify(signed.to_be_signed, signed.signature)
        return ShownProof(signed.header.publisher, leaf, steps, signed.header.root, found.count, good)
    return None


def _way_up(leaf: bytes, index: int, count: int, path: tuple[bytes, ...]) -> Iterator[tuple[bytes, bool, bytes]]:
    """RFC 9162's way from a leaf to the root: the last of an odd row has no neighbour, and goes up as it is."""
    at, last, siblings = index, count - 1, iter(path)
    current = leaf
    while last:
        if at % 2 or at < last:
            sibling, left = next(siblings), bool(at % 2)
            current = hashlib.sha256(b"\x01" + (sibling + current if left else current + sibling)).digest()
            yield sibling, left, current
        at, last = at // 2, last // 2


def _good(is_good: bool) -> Markup:
    return badge("verified", "good") if is_good else badge("does not verify", "bad")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _short(data: bytes) -> Markup:
    return element("code", f"{data.hex()[:16]}…")
