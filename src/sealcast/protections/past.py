"""What a reader asks of the past, and how a broker matches it: the part of a replay in which protections differ.

    reader    its filter, as brokers of the topic take filters, in every epoch whose events it can open (`AsksOf`)
    broker    batches that were admitted once  --PastMatching-->  the events of each that the filter is true of

A broker asks for the filter of an epoch when it first meets an event of it. So a filter that has to be sealed is sealed
for those epochs only, and its text stays with its reader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sealcast.broker import budgets
from sealcast.broker.filter_conditions import condition
from sealcast.broker.gate import Gate
from sealcast.errors import CannotOpen
from sealcast.filters.vector.evaluator import Evaluator
from sealcast.model.stages import Admitted
from sealcast.protections.port import AsksOf
from sealcast.trust.realm.machine import Topic
from sealcast.trust.vetting import vet_filter
from sealcast.wire import frame

Bools = NDArray[np.bool_]
#: Before the digest that stands for filters which nobody but their reader can read.
SEALED_NOTE: Final = "sealed, SHA-256 "


class Sender(NamedTuple):
    """Who sealed an event, and with the keys of which epoch."""

    epoch: int
    publisher: str


def senders(admitted: Admitted) -> Sequence[Sender]:
    """The sender of each event, as its publisher signed it. Admission has checked the signature."""
    headers = [frame.parse_signed(proof.signed).header for proof in admitted.frames]
    found = [Sender(header.epoch, header.publisher) for header in headers]
    return [found[index] for index in admitted.frame_index.tolist()]


class AskedPast:
    """What one reader asks for. What it sends is not believed: each filter is checked as the registry checks it."""

    def __init__(self, topic: Topic, reader: str, asks: AsksOf) -> None:
        """CannotOpen for a reader that cannot open even what is published now."""
        self.topic, self.reader, self._asks = topic, reader, asks
        self._filters: dict[int, str | None] = {}
        if self.of(topic.epoch) is None:
            raise CannotOpen(f"no key that opens events of topic {topic.name!r} was issued to {reader!r}")

    def of(self, epoch: int) -> str | None:
        """The filter as brokers take it; None if the reader could not open an event of that epoch."""
        if epoch not in self._filters:
            text = self._asks(epoch)
            if text is not None:
                vet_filter(replace(self.topic, epoch=epoch), text)
            self._filters[epoch] = text
        return self._filters[epoch]

    @property
    def closed_epochs(self) -> list[int]:
        """The epochs met so far whose events the reader could not open."""
        return sorted(epoch for epoch, text in self._filters.items() if text is None)

    def noted(self, seal: Callable[[str], str]) -> str:
        """What is kept of the filter: its text where brokers read filters, sealed; otherwise a digest of what its
        reader sealed."""
        texts = {epoch: text for epoch, text in self._filters.items() if text is not None}
        if not self.topic.protection.filters_sealed:
            return seal(texts[self.topic.epoch])
        hasher = hashlib.sha256()
        for epoch, text in sorted(texts.items()):
            hasher.update(epoch.to_bytes(8, "big") + hashlib.sha256(text.encode()).digest())
        return SEALED_NOTE + hasher.hexdigest()


class PastMatching(Protocol):
    """Matches batches of the past with what one reader asks."""

    def true(self, gate: Gate, admitted: Admitted, /) -> Bools:
        """Of which events the filter is true; the batch was admitted by this gate, at the version of its time."""


class ReadPast:
    """For brokers that read: the filter is evaluated on what they see of events, within the template of the right."""

    def __init__(self, asked: AskedPast, template: str) -> None:
        self._asked, self._template = asked, template

    def true(self, gate: Gate, admitted: Admitted) -> Bools:
        topic = self._asked.topic
        seen = Evaluator(admitted.columns, topic.schema, admitted.payloads())

        @cache
        def true_of(text: str) -> Bools:
            wanted = condition(text, self._template, topic)
            budgets.check_one(wanted, topic.schema, admitted)  # counted before anything of it is done
            return seen.true(wanted)

        epochs = np.array([each.epoch for each in senders(admitted)], np.int64)
        found = np.zeros(epochs.size, np.bool_)
        for epoch in np.unique(epochs).tolist():
            text = self._asked.of(epoch)
            if text is not None:
                found |= (epochs == epoch) & true_of(text)
        return found
