"""Forgetting where brokers can seal nothing again: events are taken out of every piece, at every broker on their way.

    which     the events that a root admitted in the span of time, or from the publisher: by their ids
    where     every step of every broker here; each piece is written again without them, the others byte by byte
    keys      brokers and publishers destroy their agreement keys of all epochs that are over

What stays is under the keys that it was sealed with, which its readers keep. So what is forgotten is gone because its
bytes are gone, and `forgetting` tries all keys on exactly those events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sealcast.errors import Misuse, Rejected
from sealcast.log.driver_lock import runs_already
from sealcast.pipeline.cutting import Cut, cut, events_of
from sealcast.protections.port import broker_side
from sealcast.protections.steps import CuttingStep, OpenStep, StepName
from sealcast.trust.deployment import Realm
from sealcast.trust.realm.topics import Topic

if TYPE_CHECKING:
    from sealcast.lab.forgetting import Forgotten


def takes_out(about: Topic) -> bool:
    """Whether events of the topic are forgotten in this way."""
    kinds = broker_side(about.protection).steps
    return bool(kinds) and all(issubclass(kind, CuttingStep) for kind in kinds)


def check(realm: Realm, topic: str) -> None:
    """All brokers on the way are here, none of them runs, and nothing is on its way."""
    state = realm.state()
    for broker in state.overlay(topic).parents:
        if not realm.paths.broker_key_of(broker).exists():
            raise Misuse(
                f"broker {broker!r} carries topic {topic!r} on another machine, and what lies there would stay",
                hint=f"take it out first (sealcast overlay remove {topic} {broker}), and delete its home there",
            )
    for step in steps(realm, topic):
        if (taken := runs_already(step.paths.ledger)) is not None:
            raise taken
        step.look([step.name])
        if step.awaits(step.committed(), step.available()):
            raise Rejected(
                f"events of topic {topic!r} wait at broker {step.name.broker!r}, and would stay on their way",
                hint="let the pipeline take them first: sealcast run --once",
            )


def steps(realm: Realm, topic: str) -> Iterator[OpenStep]:
    """Every step of the topic at every broker that has something of it here, in the order of the way."""
    state = realm.state()
    for kind in broker_side(state.topic(topic).protection).steps:
        for broker in state.brokers():
            if not realm.paths.broker_key_of(broker).exists():
                continue
            step = StepName(str(realm.paths.root), topic, broker, kind.step).open()
            if (topic, broker) in state.journals or step.paths.ledger.is_dir():
                yield step


def chosen(realm: Realm, wanted: Forgotten) -> tuple[set[bytes], int]:
    """The ids of the events that are to be forgotten, and the batches that admitted them: a publisher's, or those that
    roots committed in the span of time."""
    ids, batches = set[bytes](), 0
    for step in steps(realm, wanted.topic):
        if not step.name.reads_frames:
            continue
        for committed in step.ledger.entries():
            if wanted.includes(committed.entry.end.time_us):
                of = [each for _, _, each in events_of(step, committed.index)]
                found = {each.id for each in of if wanted.publisher in ("", each.publisher)}
                ids |= found
                batches += bool(found)
    return ids, batches


def take_out(realm: Realm, topic: str, ids: set[bytes], why: str, *, dry_run: bool = False) -> Cut:
    """Takes these events out everywhere; what they were in all. Those below come first: killed in between, the roots
    still say what is to go."""
    found = Cut()
    for step in reversed(list(steps(realm, topic))):
        done = cut(step, ids, why, dry_run=dry_run)
        found.records, found.events = found.records + done.records, found.events + done.events
        found.deliveries += done.deliveries
    return found
