"""Responding to a compromise from end to end, with the proof: what could be done before, and what can be done after.

    before   everybody's attempts (matrix.py), kept in a file without a secret in it
    respond  one transaction (trust/admin/compromise.py): from here on the keys are good for nothing that is to come
    reseal   what lies there under the old keys, topic by topic, and the old pieces are removed
    move     those whom a broker served go to others
    after    the same attempts, and the thief's with all that it took

Killed at any moment, it is run again: each part finds what is left of it, and the file has what was before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealcast.errors import Corrupt, NotFound
from sealcast.lab import matrix
from sealcast.lab.matrix import AccessCell, Loot, Matrix
from sealcast.log import files
from sealcast.overlay import moves
from sealcast.pipeline import reseal
from sealcast.pipeline.reseal import Done
from sealcast.protections.frame_steps import FramesStep
from sealcast.protections.steps import StepName
from sealcast.trust.admin.compromise import Response, center_keys, ensure_center, respond
from sealcast.trust.certificates.lists import Cause
from sealcast.trust.certificates.roles import Role
from sealcast.trust.deployment import Realm
from sealcast.trust.realm import compromise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Batches that were under way when the keys changed commit under the old ones: looked for again, so many times.
_ROUNDS: Final = 3
FORMAT: Final = 1


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
    #: Its key file is not on this machine: nobody could play the thief.
    untried: bool = False
    #: Topics that peers carry. Whoever has a subscriber's keys opens what was sealed for it in earlier epochs, wherever
    #: it lies: nobody can seal that again, and nobody tries.
    lasting: tuple[str, ...] = ()
    #: A run before this one was cut short, and this one has finished it.
    continued: bool = False

    @property
    def over(self) -> bool | None:
        """Whether nothing opens and nothing is admitted any more; None when nobody could try."""
        mine = [cell for (name, _), cell in self.after.items() if name == self.entity]
        if self.untried or self.lasting:
            return None
        return all(not cell.opened and cell.publishes != matrix.ADMITTED for cell in mine)

    @property
    def unharmed(self) -> bool:
        """Whether everybody else can still do what it could."""
        others = [(was, self.after.get(at, AccessCell())) for at, was in self.before.items() if at[0] != self.entity]
        return all(
            now.opened >= was.opened and (was.publishes != matrix.ADMITTED or now.publishes == matrix.ADMITTED)
            for was, now in others
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
    loot, kept = _steal(realm, name), _read(path)
    continued = kept is not None and kept["after"] is None
    if kept is None:
        planned = [each.topic for each in compromise.plan(realm.state(), name, center).topics]
        asked = matrix.others(realm, planned, name, others)
        seen = _plain(matrix.attempts(realm, asked, planned, loot))
        kept = {"format": FORMAT, "topics": planned, "others": asked, "before": seen, "after": None}
        _write(path, kept)
    response = respond(realm, name, cause=cause, center=center)
    topics: list[str] = list(dict.fromkeys((*kept["topics"], *(each.topic for each in response.plan.topics))))
    before = _matrix(kept["before"])
    lasting = tuple(topic for topic in topics if realm.state().topic(topic).protection.peers)
    report = DrillReport(
        name, response, tuple(topics), before=before, untried=loot is None, lasting=lasting, continued=continued
    )
    for topic in _served(realm, topics, name):
        report.resealed += _reseal(topic, name, spark, spark_above)
    if Role.BROKER in realm.state().entity(name).roles:
        report.moved = moves.rehome(realm, name)
    report.after = matrix.attempts(realm, kept["others"], topics, loot)
    _write(path, kept | {"topics": topics, "after": _plain(report.after)})
    return report


def _steal(realm: Realm, name: str) -> Loot | None:
    try:
        return matrix.steal(realm, name)
    except NotFound:
        return None


def _served(realm: Realm, topics: list[str], name: str) -> Iterator[FramesStep]:
    """The parts of these topics that can be sealed again here: brokers' that have the new key, and that of the one that
    is compromised, if it is one; where their files are."""
    state = realm.state()
    for topic in topics:
        for broker in dict.fromkeys((*state.serving(topic), *(b for b in state.brokers() if b == name))):
            ledger = realm.paths.topic(topic, broker).ledger
            if realm.paths.broker_key_of(broker).exists() and ledger.is_dir():
                yield FramesStep.of(StepName(str(realm.paths.root), topic, broker))


def _reseal(topic: FramesStep, name: str, spark: Callable[[], SparkSession] | None, spark_above: int) -> list[Done]:
    who = topic.realm.state().entity(name)
    # A broker's and a center's keys open whatever anybody was sent.
    leaked = [name] if who.roles <= {Role.ENTITY, Role.DISCOVERY} else None
    done = []
    for _ in range(_ROUNDS):
        want = reseal.wanted(topic, f"{name} was compromised", leaked, center_keys)
        if not want.places:
            break
        size = sum(topic.ledger.at(record).entry.pieces[number].size for record, number in want.places)
        session = spark() if spark is not None and size > spark_above else None
        done.append(reseal.run(topic, want, session))
        if not done[-1].pieces:
            break  # the frames of those that are left are no longer kept
    removed = reseal.remove_superseded(topic)
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
