"""What needs attention first: a pure function of one look at the realm. Each thing names the command that helps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final, NamedTuple

from sealcast.console.looking import RealmLook, ServiceLook, TopicLook

_DAY_US: Final = 86_400_000_000
_MINUTE_US: Final = 60_000_000
#: A certificate that ends so soon is not being renewed.
SOON_US: Final = 7 * _DAY_US
#: A right that ends so soon is worth a word to whoever would be cut off.
RIGHT_SOON_US: Final = 3 * _DAY_US
#: A backlog that nobody has touched for so long means that no pipeline runs.
STANDSTILL_US: Final = _MINUTE_US
#: Of the disk, and at the least.
DISK_SHARE: Final = 0.05
DISK_BYTES: Final = 1 << 30


class Severity(IntEnum):
    """How urgent something is, the most urgent last."""

    GOOD = 0
    NOTICE = 1
    WARNING = 2
    FAILING = 3

    @property
    def word(self) -> str:
        return self.name.lower()


class Attention(NamedTuple):
    """One thing to look at."""

    level: Severity
    what: str
    remedy: str
    topic: str | None = None
    #: The one entity that it concerns.
    entity: str | None = None


def attention(look: RealmLook) -> list[Attention]:
    """The most urgent first."""
    found = [*_disk(look)]
    for topic in look.topics:
        found += _topic(look, topic)
    for service in look.services:
        found += _service(look, service)
    return sorted(found, key=lambda each: -each.level)


def _disk(look: RealmLook) -> Iterator[Attention]:
    if look.disk_free < max(DISK_BYTES, int(look.disk_total * DISK_SHARE)):
        said = f"the disk of the realm has {look.disk_free / 1e9:.1f} GB left of {look.disk_total / 1e9:.0f} GB"
        yield Attention(Severity.FAILING, said, "make room: publishers are refused when it is full")


def _topic(look: RealmLook, topic: TopicLook) -> Iterator[Attention]:
    name, numbers = topic.name, topic.numbers
    if topic.trouble is not None:
        yield Attention(
            Severity.FAILING, f"{name}: {topic.trouble.message}", topic.trouble.hint or "sealcast check", name
        )
        return
    for facts in topic.facts:
        for note in facts.get("failing") or ():
            said = f"{name} at {facts['broker']}: {note['message']} ({note['attempts']:,} attempts)"
            yield Attention(Severity.FAILING, said, f"sealcast status --topic {name}", name)
        for note in facts.get("suspended") or ():
            said = f"{name}: subscription {note['subscription']} of {note['subscriber']} got nothing of "
            said += f"{note['pieces']:,} pieces, because its filter asks for too much work"
            yield Attention(
                Severity.WARNING, said, "give it a cheaper filter: try it under Filters", name, note["subscriber"]
            )
        if facts.get("misrouted"):
            said = f"{name} at {facts['broker']}: readers reported {facts['misrouted']:,} misrouted events"
            yield Attention(Severity.WARNING, said, f"sealcast audit --topic {name}", name)
    if numbers.backlog and _stands_still(look, topic):
        said = f"{name}: {numbers.backlog:,} frames wait, and no batch was committed in the last minute"
        yield Attention(Severity.WARNING, said, "run the pipeline: sealcast run", name)
    if numbers.refused:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in topic.rejected.items())
        said = f"{name}: {numbers.refused:,} events were refused ({reasons})"
        yield Attention(Severity.NOTICE, said, f"sealcast rejected list --topic {name}", name)
    due = topic.topic.rotation_due(look.now_us)
    if due is not None:
        yield Attention(Severity.NOTICE, f"{name}: {due}", "sealcast maintain", name)
    yield from _rights(look, topic)


def _rights(look: RealmLook, topic: TopicLook) -> Iterator[Attention]:
    for entity, terms in look.state.topic_state(topic.name).terms.items():
        for right, term in terms.items():
            until = term.until_us
            if until is not None and look.now_us < until < look.now_us + RIGHT_SOON_US:
                said = f"{topic.name}: {entity}'s right to {right} ends {shown_day(until)}"
                remedy = f"if it should go on: sealcast grant {topic.name} {entity} {right} --for 30d"
                yield Attention(Severity.NOTICE, said, remedy, topic.name, entity)


def _service(look: RealmLook, service: ServiceLook) -> Iterator[Attention]:
    level, said = health(look, service)
    if level > Severity.GOOD and not service.who.revoked:
        yield Attention(level, f"{service.kind} {service.who.name}: {said}", "sealcast maintain")


def health(look: RealmLook, service: ServiceLook) -> tuple[Severity, str]:
    """How a service stands, by what the registry and this machine know of it."""
    if service.who.revoked:
        return Severity.NOTICE, "revoked"
    left = service.who.expires_us - look.now_us
    if left <= 0:
        return Severity.FAILING, f"its certificate ended {shown_day(service.who.expires_us)}"
    if left < SOON_US:
        return Severity.WARNING, f"its certificate ends {shown_day(service.who.expires_us)}"
    where = "keys on this machine" if service.keys_here else "elsewhere"
    return Severity.GOOD, f"{where}; certificate until {shown_day(service.who.expires_us)}"


def _stands_still(look: RealmLook, topic: TopicLook) -> bool:
    moments = [datetime.fromisoformat(f["last_batch_at"]) for f in topic.facts if f.get("last_batch_at")]
    if not moments:
        return True
    return look.now_us - int(max(moments).timestamp() * 1e6) > STANDSTILL_US


def shown_day(time_us: int) -> str:
    """A moment, as far as it matters to people who plan."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")
