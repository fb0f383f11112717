"""The brokers of a layered topic, as `status` and `rejected` show them: numbers that brokers have, and no content.

What is public is read by anyone who has the files. How many rows a broker's table has, and which posts of filters it
refused, stands in its own log, which its key file opens: where that is not here, it is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sealcast.cli import talk
from sealcast.cli.refusals import newest_first

if TYPE_CHECKING:
    from sealcast.log.piece_reader import PieceReader
    from sealcast.protections.layered.filters.table import TableLog
    from sealcast.trust.deployment import Realm
    from sealcast.wire.hops import HopPiece

SHOWN = 20


def describe(here: Realm, topic: str, node: str) -> dict[str, Any]:
    """How a layered topic stands at one of its brokers."""
    from sealcast.log.piece_reader import hop_reader

    state, paths = here.state(), here.paths.topic(topic, node)
    about, overlay = state.topic(topic), state.overlay(topic)
    reader = hop_reader(paths.hops.root)
    try:
        lag = _lags(here, topic, node)
        return {
            "topic": topic,
            "broker": node,
            "protection": about.protection.name,
            "parent": overlay.parents[node],
            "partitions": about.partitions,
            # Who wants what is not known: neither to the realm nor to this broker.
            "subscriptions": None,
            "subscribers": len(lag),
            "authorised": sum(state.may_subscribe(topic, name) for name in overlay.subscribers(node)),
            **(_admission(here, topic, node) if overlay.parents[node] is None else {}),
            "hops": _hops(here, topic, node, reader),
            "filters": _filters(here, topic, node),
            "lag": {"total": sum(lag.values()), "subscribers": lag},
        }
    finally:
        reader.close()


def show(found: dict[str, Any]) -> None:
    hops, filters, lag = found["hops"], found["filters"], found["lag"]
    above = "a root" if found["parent"] is None else f"below {found['parent']!r}"
    rows = "" if filters["rows"] is None else f"{filters['rows']:,} rows, "
    items: list[tuple[str, object]] = [("topic", f"{found['topic']} (layered) at {found['broker']!r}, {above}")]
    if "frames" in found:
        items += [
            ("frames", f"{found['frames']:,} published, {found['backlog']:,} waiting for the pipeline"),
            ("events", f"{found['events']['admitted']:,} admitted"),
            ("rejected", _reasons(found["rejected"])),
        ]
    items += [
        ("hops", f"{hops['batches']:,} batches" + f", the last at {hops['last_batch_at']}" * bool(hops["batches"])),
        ("waiting", f"{hops['waiting_records']:,} records of the broker above, {filters['waiting']:,} filter posts"),
        ("handed on", f"{hops['events']:,} events, {hops['deliveries']:,} of them to subscribers here"),
        ("refused here", _reasons(hops["rejected"])),
        ("table", f"{rows}version {filters['version']:,}; posts refused: {_reasons(filters['refused'] or {})}"),
        ("subscribers", f"{found['subscribers']:,}, {found['authorised']:,} may read"),
        ("lag", f"{lag['total']:,} deliveries not acknowledged"),
    ]
    talk.pairs(items)
    behind = sorted(((n, name) for name, n in lag["subscribers"].items() if n), reverse=True)
    if behind:
        talk.say("")
        talk.table(["subscriber", "lag"], [(name, n) for n, name in behind[:SHOWN]], "")


def refusals(here: Realm, topic: str, node: str) -> Iterator[dict[str, Any]]:
    """What a broker refused, newest first within each kind: frames and events that a root did not admit, messages that
    were none, and posts of filters."""
    from sealcast.log.piece_reader import hop_reader

    paths = here.paths.topic(topic, node)
    places = [paths.hops.root, *([paths.root] if here.state().overlay(topic).parents[node] is None else [])]
    for place in places:
        reader = hop_reader(place)
        try:
            yield from newest_first(reader, topic, node)
        finally:
            reader.close()
    log = _table_log(here, topic, node)
    if log is not None:
        try:
            told = [refusal for turn in log.turns(0) for refusal in turn.told]
        finally:
            log.close()
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


# --- inside -----------------------------------------------------------------------------------------------


def _admission(here: Realm, topic: str, root: str) -> dict[str, Any]:
    from sealcast.cli.status import ledger
    from sealcast.log.ledger import LedgerReader

    with LedgerReader(here.paths.topic(topic, root).ledger) as reader:
        return ledger(here, topic, root, reader)


def _hops(here: Realm, topic: str, node: str, reader: PieceReader[HopPiece]) -> dict[str, Any]:
    from sealcast.cli.status import RATE_SECONDS, REJECTED, moment

    totals, recent, last_us = dict[str, int](), 0, None
    since = time.time_ns() // 1000 - RATE_SECONDS * 1_000_000
    for committed in reader.ledger.entries():
        for key, count in committed.entry.counts.items():
            totals[key] = totals.get(key, 0) + count
        recent += committed.entry.counts.get("matched", 0) if committed.time_us >= since else 0
        last_us = committed.time_us
    return {
        "batches": reader.end(),
        "last_batch_at": moment(last_us),
        "waiting_records": waiting(here, topic, node, reader),
        "events": totals.get("matched", 0),
        "deliveries": totals.get("deliveries", 0),
        "encryptions": totals.get("encryptions", 0),
        "rejected": {k.removeprefix(REJECTED): n for k, n in sorted(totals.items()) if k.startswith(REJECTED)},
        "per_second": round(recent / RATE_SECONDS, 2),
    }


def waiting(here: Realm, topic: str, node: str, reader: PieceReader[HopPiece]) -> int:
    """Records of the ledgers above that this broker has not taken yet."""
    from sealcast.log.piece_reader import hop_reader
    from sealcast.protections.layered.node import HOPS, HopStep
    from sealcast.protections.steps import StepName

    last = reader.ledger.last_span()
    opened = HopStep.of(StepName(str(here.paths.root), topic, node, HOPS))
    done = last.end.partitions if last is not None else ()
    above, names = here.state().overlay(topic).parents[node] or node, opened.upstreams()
    names = names if above in names else (*names, above)
    total = 0
    for number, name in enumerate(names):
        paths = here.paths.topic(topic, name)
        upstream = hop_reader(paths.root if name == node else paths.hops.root)
        total += max(0, upstream.end() - (done[number] if number < len(done) else 0))
        upstream.close()
    return total


def _filters(here: Realm, topic: str, node: str) -> dict[str, Any]:
    from sealcast.protections.layered.filters.posts import PostLog

    posts, count = here.paths.topic(topic, node).filter_posts, 0
    if posts.is_dir():
        with PostLog(posts) as waits:
            count = max(0, waits.end() - waits.taken())
    log = _table_log(here, topic, node)
    if log is None:
        return {"waiting": count, "version": 0, "rows": None, "refused": None}
    try:
        fold = log.fold()
        return {"waiting": count, "version": fold.version, "rows": len(fold), "refused": dict(fold.refused)}
    finally:
        log.close()


def _table_log(here: Realm, topic: str, node: str) -> TableLog | None:
    from sealcast.protections.layered.filters.table import TableLog

    if not here.paths.broker_key_of(node).exists():
        return None
    return TableLog(here, topic, here.broker(node))


def _lags(here: Realm, topic: str, node: str) -> dict[str, int]:
    from sealcast.protections.layered.client import mailbox_at

    found = dict[str, int]()
    for name in here.state().overlay(topic).subscribers(node):
        mailbox = mailbox_at(here, topic, node, name)
        found[name] = mailbox.lag()
        mailbox.close()
    return found


def _reasons(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.items() if count) or "nothing"
