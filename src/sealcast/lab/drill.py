"""Responding to a compromise from end to end, with the proof: what could be done before, and what can be done after.

    before   everybody's attempts (matrix.py), kept in a file without a secret in it
    respond  one transaction (trust/admin/compromise.py): from here on the keys are good for nothing that is to come
    reseal   what lies there under the old keys, topic by topic, and the old pieces are removed
    forget   frames that the old keys open, once what became of them is sealed again
    move     those whom a broker served go to others
    after    the same attempts, and the thief's with all that it took

Where the entity's keys are not on this machine, nobody can play the thief. Then whatever its keys could open, by what
is on record, counts as open (lab/theft/presumes.py), and goes the same way.

Killed at any moment, it is run again: each part finds what is left of it, and the file has what was before. Run again
after it has finished, it compares with what the others can do by then. It is not over while something lies there that
cannot be taken back, and that is said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast.errors import Corrupt, NotFound
from sealcast.lab import matrix
from sealcast.lab.matrix import AccessCell, Matrix
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.presumes import Presumes
from sealcast.lab.theft.publishing import ADMITTED
from sealcast.lab.theft.reads import Thief
from sealcast.lab.theft.tries import Tries
from sealcast.lab.thief import FramesRead
from sealcast.log import files
from sealcast.overlay import moves, routing
from sealcast.pipeline import reseal
from sealcast.pipeline.reseal import Done
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.protections.withdrawing import remove_superseded
from sealcast.trust.admin.compromise import Response, center_keys, ensure_center, missing_center, respond
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.handles import OpenRealm
from sealcast.trust.realm import compromise
from sealcast.trust.realm.compromise import CompromisePlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Batches that were under way when the keys changed commit under the old ones: looked for again, so many times.
_ROUNDS: Final = 3
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class ForgottenFrames:
    """What became of the frames of a topic at one broker that stolen keys open."""

    topic: str
    broker: str
    #: Frames that were removed.
    removed: int
    #: Messages that the thief still reads in those that were not, and why they were not.
    left: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """What responding to a compromise would do."""

    plan: CompromisePlan
    #: A key center that would be made first, because the only one is compromised.
    new_center: str
    #: Pieces that would be sealed again, by topic.
    pieces: dict[str, int]
    #: Messages in frames that the stolen keys open, by topic: those frames would be removed.
    frames: dict[str, int]
    #: Topics of which something lies there that cannot be sealed again.
    lasting: tuple[str, ...]


@dataclass(slots=True)
class DrillReport:
    """What was done about an entity, and what came of it."""

    entity: str
    response: Response
    #: All topics that had to change, also in runs before this one.
    topics: tuple[str, ...]
    resealed: list[Done] = field(default_factory=list)
    #: Of a broker: those whom it served, topic by topic, and where they are now.
    moved: list[tuple[str, str, str]] = field(default_factory=list)
    before: Matrix = field(default_factory=dict)
    after: Matrix = field(default_factory=dict)
    #: Its key file is not on this machine: nobody could play the thief, and what it could open counts as open.
    untried: bool = False
    #: Topics whose brokers open nothing, or that peers carry, and of which the stolen keys still open something that
    #: lies here: nobody can seal that again.
    lasting: tuple[str, ...] = ()
    #: What lies here and was not tried.
    elsewhere: tuple[str, ...] = ()
    forgotten: list[ForgottenFrames] = field(default_factory=list)
    #: A run before this one was cut short, and this one has finished it.
    continued: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing opens and nothing is admitted any more, as far as what lies here can show."""
        mine = [cell for (name, _), cell in self.after.items() if name == self.entity]
        return not self.lasting and all(cell.harmless for cell in mine)

    @property
    def unharmed(self) -> bool:
        """Whether everybody else can still do what it could."""
        others = [(was, self.after.get(at, AccessCell())) for at, was in self.before.items() if at[0] != self.entity]
        return all(
            now.opened >= was.opened and (was.publishes != ADMITTED or now.publishes == ADMITTED) for was, now in others
        )


def drill(
    realm: Realm,
    name: str,
    *,
    cause: Cause = Cause.KEY_COMPROMISE,
    center: str | None = None,
    others: int = matrix.OTHERS_TRIED,
    spark: Callable[[], SparkSession] | None = None,
    spark_above: int = 64 << 20,
) -> DrillReport:
    """Responds to a compromise, end to end. With `spark`, resealing more than `spark_above` bytes is a Spark job."""
    path = realm.paths.root / "compromises" / f"{realm.state().entity(name).name}.json"
    ensure_center(realm, name, center)
    thief, kept = _thief(realm, name), _read(path)
    continued = kept is not None and kept["after"] is None
    if kept is None:
        planned = compromise.touched(realm.state(), name)
        asked = matrix.others(realm, planned, name, others)
        seen = _plain(matrix.attempts(realm, asked, planned, thief))
        kept = {"format": FORMAT, "topics": planned, "others": asked, "before": seen, "after": None}
        _write(path, kept)
    before = _matrix(kept["before"])
    if kept["after"] is not None:
        # Finished before: since then the others may have lost rights, or read on, for reasons of their own.
        before |= matrix.attempts(realm, kept["others"], kept["topics"])
    response = respond(realm, name, cause=cause, center=center)
    topics: list[str] = list(dict.fromkeys((*kept["topics"], *compromise.touched(realm.state(), name))))
    report = DrillReport(name, response, tuple(topics), before=before, untried=not thief.tries, continued=continued)
    for step in _served(realm, topics, name):
        exposed = any(_exposed(thief, step).values())
        if not _routes(realm, step):
            report.resealed += _reseal(step, name, spark, spark_above, everything=exposed)
        if exposed:
            report.forgotten.append(_forget(realm, thief, step))
    if Role.BROKER in realm.state().entity(name).roles:
        report.moved = moves.rehome(realm, name)
    report.after = matrix.attempts(realm, kept["others"], topics, thief)
    report.lasting = tuple(topic for topic in topics if _lasts(realm, topic, report.after[name, topic]))
    report.elsewhere = tuple(_elsewhere(realm, topics))
    _write(path, kept | {"topics": topics, "after": _plain(report.after)})
    return report


def preview(realm: Realm, name: str, *, center: str | None = None) -> Preview:
    """What `drill` would do, without doing any of it."""
    state, thief = realm.state(), _thief(realm, name, tokens=False)
    new_center = missing_center(realm, name, center)
    plan = compromise.plan(state, name, new_center or center, made=new_center is not None)
    topics, pieces, frames = compromise.touched(state, name), Counter[str](), Counter[str]()
    rotating = {each.topic for each in plan.topics}
    for step in _served(realm, topics, name):
        topic, exposed = step.name.topic, _exposed(thief, step)
        epoch = state.topic(topic).epoch + (topic in rotating)
        leaked = None if any(exposed.values()) else _leaked(realm, name)
        if not _routes(realm, step):
            pieces[topic] += len(reseal.wanted(step, "", leaked, epoch=epoch).places)
        frames[topic] += sum(read.messages for read in exposed.values())
    lasting = tuple(topic for topic in topics if _lasts(realm, topic, matrix.tried(thief, topic)))
    return Preview(plan, new_center or "", dict(+pieces), dict(+frames), lasting)


# --- frames -------------------------------------------------------------------------------------------


def _exposed(thief: Thief, step: FramesStep) -> dict[int, FramesRead]:
    """What a thief reads of the frames at one broker, by partition."""
    found = thief.frames(step.name.topic)
    return {partition: read for broker, partition, read in found if broker == step.name.broker and read.end}


def _forget(realm: Realm, thief: Thief, step: FramesStep) -> ForgottenFrames:
    """Removes the frames that a thief reads. They were sealed for the broker, which has taken them; the record of them
    is what was sealed again."""
    topic, broker, state = step.name.topic, step.name.broker, realm.state()
    removed, why = 0, ""
    if state.topic(topic).protection.retention is not None:
        why = "the topic keeps frames for filters that come later"
    elif behind := _behind(realm, topic, broker):
        why = f"broker {behind!r} has not been sent them yet"
    else:
        done = reseal.settled(step)
        with realm.frames(topic, broker) as log:
            for partition, read in _exposed(thief, step).items():
                part, settled = log.partition(partition), done[partition] if partition < len(done) else 0
                start = part.start()
                # Younger frames go, too, where they share a file with one that has to.
                if part.drop(min(read.end, settled)) < read.end:
                    part.drop(settled)
                removed += part.start() - start
    left = sum(read.messages for read in _exposed(thief, step).values())
    waits = "they wait to be sealed, or share a file with frames that do" if left and not why else why
    return ForgottenFrames(topic, broker, removed, left, waits)


def _behind(realm: Realm, topic: str, broker: str) -> str | None:
    """A broker to which some of these frames are still to be forwarded."""
    found = routing.links(realm.state(), broker, [topic])
    return next((link.destination for link, since in found.items() if routing.waiting(realm, link, since)), None)


# --- what cannot be taken back ------------------------------------------------------------------------


def _lasts(realm: Realm, topic: str, found: AccessCell) -> bool:
    """Whether something lies there that was sealed for readers, that the stolen keys open, and that no broker can seal
    again. What peers keep is not tried: it lies with each of them, under the keys of single subscriptions."""
    protection = realm.state().topic(topic).protection
    unsealable = found.opened or found.routed if protection.overlay else found.queued
    return protection.peers or bool(unsealable)


def _elsewhere(realm: Realm, topics: list[str]) -> Iterator[str]:
    """What lies here, and was not tried."""
    state = realm.state()
    for topic in (name for name in topics if state.topic(name).protection.peers):
        for name in (each.name for each in state.entities.values() if Role.ENTITY in each.roles):
            root = realm.paths.topic(topic, name).root
            if root.is_dir() and any(path.is_file() for path in root.rglob("*")):
                yield f"topic {topic!r}: what the peer of {name!r} keeps, in {root}"


def _thief(realm: Realm, name: str, *, tokens: bool = True) -> Thief:
    """Somebody with the entity's keys, if they are here; if not, somebody who is taken to open what they could."""
    try:
        return Tries(realm, steal(realm, name, tokens=tokens))
    except NotFound:
        return Presumes(realm, name)


def _served(realm: Realm, topics: list[str], name: str) -> Iterator[FramesStep]:
    """The parts of these topics whose frames were taken in here: of brokers that have the new key, and of the one that
    is compromised, if it is one."""
    state = realm.state()
    for topic in topics:
        for broker in dict.fromkeys((*state.serving(topic), *(b for b in state.brokers() if b == name))):
            ledger = realm.paths.topic(topic, broker).ledger
            if realm.paths.broker_key_of(broker).exists() and ledger.is_dir():
                yield FramesStep.of(StepName(str(realm.paths.root), topic, broker))


def _routes(realm: OpenRealm, step: FramesStep) -> bool:
    """Whether its brokers hand on what none of them opens: then nothing is sealed again, and only frames can go."""
    return realm.state().topic(step.name.topic).protection.overlay


def _leaked(realm: OpenRealm, name: str) -> list[str] | None:
    """Whose deliveries stolen keys open; None for everybody's: a broker's and a center's open whatever anybody was
    sent."""
    return [name] if realm.state().entity(name).roles <= {Role.ENTITY, Role.DISCOVERY} else None


def _reseal(
    topic: FramesStep, name: str, spark: Callable[[], SparkSession] | None, spark_above: int, *, everything: bool
) -> list[Done]:
    """What the stolen keys open; or `everything`, because the frames that it came from are about to go."""
    leaked, done = None if everything else _leaked(topic.realm, name), list[Done]()
    for _ in range(_ROUNDS):
        want = reseal.wanted(topic, f"{name} was compromised", leaked, center_keys)
        if not want.places:
            break
        size = sum(topic.ledger.at(record).entry.pieces[number].size for record, number in want.places)
        session = spark() if spark is not None and size > spark_above else None
        done.append(reseal.run(topic, want, session))
        if not done[-1].pieces:
            break  # nobody can seal those again that are left
    removed = remove_superseded(topic)
    if removed and done:
        done[-1].removed += removed
    return done


# --- the file -----------------------------------------------------------------------------------------


def _plain(cells: Matrix) -> list[dict[str, Any]]:
    return [{"entity": entity, "topic": topic, **asdict(cell)} for (entity, topic), cell in cells.items()]


def _matrix(body: list[dict[str, Any]]) -> Matrix:
    return {(row.pop("entity"), row.pop("topic")): AccessCell(**row) for row in map(dict, body)}


def _read(path: Path) -> dict[str, Any] | None:
    """Reads what an earlier run kept, if there was one. What could be done before the response is what that run saw."""
    try:
        body = json.loads(path.read_bytes())
        if body["format"] != FORMAT:
            raise ValueError(FORMAT)
        _matrix(body["before"])
        return dict(body)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise Corrupt(f"{path} cannot be read", hint="remove it: it only keeps what could be done before") from None


def _write(path: Path, body: dict[str, Any]) -> None:
    files.make_directory(path.parent)
    files.replace_file(path, json.dumps(body, indent=1).encode() + b"\n")
