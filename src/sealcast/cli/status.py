"""sealcast status: topics, subscriptions, lag, rates, rejections by reason. Public things only, no keys."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sealcast.cli import layered_nodes, talk

if TYPE_CHECKING:
    from sealcast.log.ledger import LedgerReader
    from sealcast.trust.deployment import Realm

app = typer.Typer(**talk.SETTINGS)

#: Rates are means over this long before now.
RATE_SECONDS: Final = 60
SHOWN: Final = 20
REJECTED: Final = "rejected_"


@app.command(epilog="Example: sealcast status --topic quotes")
def status(
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic.")] = None,
    realm: talk.RealmOption = None,
    json: talk.JsonOption = False,
) -> None:
    """Show how every topic stands: what was published, delivered and refused, and how far behind everyone is.

    Backlog counts frames that no batch has handled yet; lag counts events that a subscriber has not acknowledged. Of a
    layered topic every broker of its overlay is shown: what waits above it, and how many rows its table has.
    """
    here = talk.open_realm(realm)
    state = here.state()
    names = [state.topic(topic).name] if topic is not None else list(state.topics)
    found = [
        layered_nodes.describe(here, name, broker)
        if not state.topic(name).protection.brokers_read
        else describe(here, name, broker)
        for name in names
        for broker in (
            state.overlay(name).downwards() if not state.topic(name).protection.brokers_read else state.serving(name)
        )
    ]
    if json:
        talk.emit({"realm": here.name, "version": state.version, "entities": len(state.entities), "topics": found})
        return
    live = sum(not e.revoked for e in state.entities.values())
    talk.pairs(
        [
            ("realm", f"{here.name} ({here.paths.root})"),
            ("version", state.version),
            ("entities", f"{live} enrolled, {len(state.entities) - live} revoked"),
        ]
    )
    if not found:
        talk.note("no topics yet: sealcast topic create NAME --schema FILE")
    for each in found:
        talk.say("")
        layered_nodes.show(each) if "hops" in each else _show(each)


def describe(here: Realm, name: str, broker: str) -> dict[str, Any]:
    """How one topic stands at one of its brokers."""
    from sealcast.clients.lag import cursors, lags
    from sealcast.log.piece_reader import sealed_reader

    state, paths = here.state(), here.paths.topic(name, broker)
    found, at_home = state.topic_state(name), state.subscriptions_at(name, broker)
    reader = sealed_reader(paths.root)
    try:
        at = cursors(paths, found.slots)
        lag = {who: n for who, n in lags(reader, found.slots, at).items() if state.served_at(name, who, broker)}
        return {
            "topic": name,
            "broker": broker,
            "protection": found.topic.protection.name,
            "partitions": found.topic.partitions,
            "subscriptions": len(at_home),
            "subscribers": len(lag),
            "authorised": len(list(state.authorised_slots(name))),
            **ledger(here, name, broker, reader.ledger),
            "lag": {"total": sum(lag.values()), "subscribers": lag},
        }
    finally:
        reader.close()


def ledger(here: Realm, name: str, broker: str, reader: LedgerReader) -> dict[str, Any]:
    """What a broker's ledger says of the topic, and what waits for it."""
    ends: list[int] = []
    if here.paths.topic(name, broker).frames_root.is_dir():
        with here.frames(name, broker, read_only=True) as log:
            ends = [log.partition(p).end() for p in range(log.partitions)]
    since, recent = time.time_ns() // 1000 - RATE_SECONDS * 1_000_000, dict[str, int]()
    totals, done, version, last_us = dict[str, int](), [0] * len(ends), 0, None
    for committed in reader.entries():
        for key, count in committed.entry.counts.items():
            totals[key] = totals.get(key, 0) + count
            if committed.time_us >= since:
                recent[key] = recent.get(key, 0) + count
        done, version, last_us = list(committed.entry.end.partitions), committed.entry.version, committed.time_us
    return {
        "frames": sum(ends),
        "backlog": sum(end - (done[p] if p < len(done) else 0) for p, end in enumerate(ends)),
        "batches": reader.end(),
        "version_in_force": version,
        "last_batch_at": moment(last_us),
        "events": {k: totals.get(k, 0) for k in ("admitted", "matched", "deliveries", "encryptions")},
        "rejected": {k.removeprefix(REJECTED): n for k, n in sorted(totals.items()) if k.startswith(REJECTED)},
        "per_second": {k: round(recent.get(k, 0) / RATE_SECONDS, 2) for k in ("admitted", "deliveries")},
    }


def _show(found: dict[str, Any]) -> None:
    events, lag = found["events"], found["lag"]
    refused = ", ".join(f"{reason} {count:,}" for reason, count in found["rejected"].items()) or "nothing"
    talk.pairs(
        [
            ("topic", f"{found['topic']} ({found['protection']}) at {found['broker']!r}"),
            (
                "subscriptions",
                f"{found['subscriptions']:,} of {found['subscribers']:,} subscribers, {found['authorised']:,} may read",
            ),
            ("frames", f"{found['frames']:,} published, {found['backlog']:,} waiting for the pipeline"),
            ("batches", f"{found['batches']:,}" + (f", the last at {found['last_batch_at']}" * bool(found["batches"]))),
            (
                "events",
                f"{events['admitted']:,} admitted, {events['matched']:,} matched, {events['deliveries']:,} deliveries",
            ),
            ("encryptions", f"{events['encryptions']:,}" + _per(events["encryptions"], events["matched"])),
            ("rejected", refused),
            ("last minute", "{admitted:,} events/s, {deliveries:,} deliveries/s".format(**found["per_second"])),
            ("lag", f"{lag['total']:,} deliveries not acknowledged"),
        ]
    )
    behind = sorted(((n, name) for name, n in lag["subscribers"].items() if n), reverse=True)
    if behind:
        talk.say("")
        talk.table(["subscriber", "lag"], [(name, n) for n, name in behind[:SHOWN]], "")
        if len(behind) > SHOWN:
            talk.note(f"... and {len(behind) - SHOWN:,} more; --json has them all")


def _per(count: int, events: int) -> str:
    return f" ({count / events:.2f} per matched event)" if events else ""


def moment(time_us: int | None) -> str | None:
    from datetime import UTC, datetime

    if time_us is None:
        return None
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
