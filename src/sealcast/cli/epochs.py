"""sealcast topic rotate, sealcast topic serve: who holds a topic's key, and since when."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import owners, talk
from sealcast.cli.times import moment
from sealcast.trust.certificates.roles import Role

if TYPE_CHECKING:
    from sealcast.trust.deployment import Realm
    from sealcast.trust.realm.machine import Topic

#: How long a broker on another machine is asked how much it has sealed.
PATIENCE_S: Final = 1.0


def rotate(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Topics to rotate now.")] = None,
    due: Annotated[
        bool, typer.Option("--due", help="Rotate every topic whose key is too old or has sealed enough messages.")
    ] = False,
    as_: owners.OwnerOption = None,
) -> None:
    """Start a new epoch: new keys for the topic's brokers and for all who may use it.

    Events that were sealed before stay readable for those who could read them. Publishers that still use the old epoch
    are admitted during the topic's grace period. With --due, each topic's own limits count: --key-lifetime and
    --messages-per-key of `sealcast topic create`.
    """
    from sealcast.control import requests

    if bool(topics) == due:
        raise typer.BadParameter("name topics, or give --due")
    if as_ is not None and due:
        raise typer.BadParameter("an owner names the topics; their key center rotates what is due")
    here = talk.open_realm(afar=as_ is not None)
    reasons = here.rotate_due(counts=Messages(here).counts()) if due else dict.fromkeys(topics or (), "asked for")
    if as_ is not None:
        with owners.asking(here, as_) as owner:
            asked = [here.state().topic(name) for name in reasons]
            reached = {each.name: requests.rotate(owner, each.center, each.name, each.epoch) for each in asked}
        state = owners.seen(here, lambda now: all(now.topic(name).epoch >= epoch for name, epoch in reached.items()))
    else:
        if not due:
            here.rotate_many(list(reasons))
        state = here.state()
    topics_now = ((state.topic(name), why) for name, why in reasons.items())
    rotated = [
        {"topic": about.name, "epoch": about.epoch, "since": moment(about.epoch_starts[-1]), "why": why}
        for about, why in topics_now
    ]
    said = ("topic {topic!r} is in epoch {epoch} since {since}: {why}".format(**each) for each in rotated)
    talk.answer({"rotated": rotated}, *said, empty="nothing is due")


def serve(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="An enrolled broker.")],
) -> None:
    """Let a broker serve a topic: its key center hands it the topic's key, sealed to it alone."""
    state = talk.open_realm(home_of=Role.KEY_CENTER).serve(topic, broker)
    epochs = sorted(epoch for epoch, name in state.topic_state(topic).topic_keys if name == broker)
    talk.answer(
        {"topic": topic, "broker": broker, "epochs": epochs, "version": state.version},
        f"broker {broker!r} has the key of topic {topic!r} in epoch {', '.join(map(str, epochs))}",
    )


class Messages:
    """How many messages each topic's key has sealed in its present epoch, by the topics' ledgers.

    Asked again, it reads only what the ledgers have gained: a pipeline that runs for weeks asks every minute.
    """

    def __init__(self, here: Realm) -> None:
        self._here = here
        #: By topic and broker: the epoch, how far the ledger was read, and the messages up to there.
        self._read: dict[tuple[str, str], tuple[int, int, int]] = {}

    def counts(self) -> dict[str, int]:
        """By topic. Its brokers share its key, so that what they seal counts together."""
        state, counts = self._here.state(), dict[str, int]()
        for name, found in state.topics.items():
            counts[name] = sum(self._sealed(found.topic, broker) for broker in state.serving(name))
        return counts

    def _sealed(self, topic: Topic, broker: str) -> int:
        from sealcast.log.ledger import LedgerReader
        from sealcast.transports.problems import GatewayUnreachable

        epoch, first, count = self._read.get((topic.name, broker), (0, 0, 0))
        site = self._here.asking(self._here.state())
        with LedgerReader(site.journal(topic.name, broker, "", PATIENCE_S)) as ledger, suppress(GatewayUnreachable):
            if epoch != topic.epoch:
                first, count = ledger.index_at(topic.epoch_starts[-1]), 0
            end = ledger.end()
            records = (ledger.at(index).entry.pieces for index in range(first, end))
            count += sum(piece.events for pieces in records for piece in pieces)
            self._read[topic.name, broker] = topic.epoch, end, count
        return count  # as it was known, of a broker that cannot be reached
