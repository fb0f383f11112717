"""Claims on sequence numbers become rulings on frames.

    rule_frames   all frames of a batch, by whoever has them all: the ledger checker, tests, benchmarks
    rule_part     a task's own frames, when other tasks have others of the same publishers

Both decide the same. A task reads the other frames, too, and assumes that all of them are signed. Where even then
nothing of a publisher is refused, nothing is refused if fewer of them are signed. Of other publishers the signatures
are verified, so that nobody's forgery decides about anybody's frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sealcast.broker.authenticate import assume, authenticate
from sealcast.broker.gate import RULING, Codes, Gate, Rulings
from sealcast.broker.replay import CLAIM, Bools, Claims, ReplayVerdict, Verdicts, Windows
from sealcast.errors import Bug
from sealcast.log.embedded import EmbeddedTopic
from sealcast.log.offsets import AS_STAMPED, Arrival
from sealcast.log.port import Record
from sealcast.model.bounded import bounded
from sealcast.model.stages import Received, Ruled

#: Frames that are held in memory at a time while they are authenticated.
BYTES_AT_A_TIME: Final = 8 << 20
FRAMES_AT_A_TIME: Final = 16_384

#: Verdicts that do not hang on what else is in the batch.
_BEYOND_DOUBT: Final = (ReplayVerdict.FRESH, ReplayVerdict.ELSEWHERE)
#: Verdicts on claims whose numbers are spent.
_TAKEN: Final = (ReplayVerdict.FRESH, ReplayVerdict.EVENTS, ReplayVerdict.BYTES)

_NO_CLAIMS: Final = np.empty(0, CLAIM)

Publishers = NDArray[np.uint64]
#: (partition, first offset, end offset)
Span = tuple[int, int, int]


def rule(claims: Claims, verdicts: Verdicts) -> Rulings:
    """What was decided of claims, as rulings in their order."""
    rulings = np.empty(claims.size, RULING)
    rulings["partition"], rulings["offset"], rulings["code"] = claims["partition"], claims["offset"], verdicts
    return rulings


def rule_frames(
    windows: Windows, log: EmbeddedTopic, spans: Iterable[Span], gate: Gate, arrival: Arrival, settled_us: int
) -> dict[int, Codes]:
    """Every frame of a batch, from the log, authenticated and decided: of each partition the codes from the first frame
    on. One span a partition."""
    asked, refused, codes = [np.empty(0, CLAIM)], [np.empty(0, RULING)], dict[int, Codes]()
    first_of = {}
    for partition, first, end in spans:
        first_of[partition], codes[partition] = first, np.zeros(end - first, np.uint8)
        for received in gathered(partition, log.partition(partition).read(first, end), arrival):
            for parts, found in zip((asked, refused), authenticate(received, gate), strict=True):
                parts.append(found)
    claims = np.concatenate(asked)
    decided = rule(claims, windows.decide(claims))
    windows.forget(settled_us)
    for ruling in np.concatenate([*refused, decided]).tolist():
        partition, offset, code = ruling
        codes[partition][offset - first_of[partition]] = code
    return codes


def rule_part(windows: Windows, own: Claims, others: Callable[[], Iterator[Received]], gate: Gate) -> Verdicts:
    """Verdicts on claims of one task, whose frames are signed. `others` reads the other frames of the batch that may be
    of the same publishers: once more, if anything is refused."""

    def signed(publishers: Publishers) -> Claims:
        parts = (part for each in others() if (part := _of(each, publishers, gate)) is not None)
        return np.concatenate([_NO_CLAIMS, *(authenticate(part, gate)[0] for part in parts)])

    return decide_part(windows, own, np.concatenate([_NO_CLAIMS, *(assume(each, gate) for each in others())]), signed)


def decide_part(windows: Windows, own: Claims, others: Claims, signed: Callable[[Publishers], Claims]) -> Verdicts:
    """Verdicts on claims of one task, beside those that others have made if their frames are signed. `signed` has those
    of some publishers whose frames are."""
    assumed = np.concatenate([own, others])
    verdicts = windows.copy().decide(assumed)
    doubtful = np.unique(assumed["publisher"][~np.isin(verdicts, _BEYOND_DOUBT)])
    if doubtful.size and others.size:
        verdicts = windows.copy().decide(np.concatenate([own, signed(doubtful)]))
    return verdicts[: own.size]


def _of(received: Received, publishers: Publishers, gate: Gate) -> Received | None:
    """Those of the frames that say they are of these publishers; None without any."""
    claims = assume(received, gate)
    wanted = set(claims["offset"][np.isin(claims["publisher"], publishers)].tolist())
    rows = [row for row, offset in enumerate(received.offsets) if offset in wanted]
    if not rows:
        return None
    offsets, times = ([column[row] for row in rows] for column in (received.offsets, received.times))
    return Received(received.partition, offsets, times, [received.frames[row] for row in rows])


def pack_taken(claims: Claims, verdicts: Verdicts) -> bytes:
    """What replay took of a task's claims, and which of it was charged to publishers' accounts: for whoever keeps the
    windows."""
    taken = np.isin(verdicts, _TAKEN)
    charged = verdicts[taken] == ReplayVerdict.FRESH
    return bytes(charged.tobytes() + claims[taken].tobytes())


def unpack_taken(packed: bytes) -> tuple[Claims, Bools]:
    count, rest = divmod(len(packed), CLAIM.itemsize + 1)
    if rest:
        raise Bug("a task tells of claims, and some of them are cut off")
    return np.frombuffer(packed, CLAIM, count, count), np.frombuffer(packed, np.bool_, count)


def gathered(
    partition: int, records: Iterable[Record], arrival: Arrival, most: int = FRAMES_AT_A_TIME
) -> Iterator[Received]:
    """Records of one partition, as many at a time as memory should hold, and at most so many."""
    batches = bounded(records, lambda record: len(record.data), BYTES_AT_A_TIME, most)
    return (received_of(partition, held, arrival) for held in batches)


def received_of(partition: int, records: Sequence[Record], arrival: Arrival) -> Received:
    """Records of one partition, to be judged at a time within the batch's arrival."""
    offsets, times, frames = zip(*records, strict=True) if records else ((), (), ())
    return Received(partition, offsets, [arrival.at(time_us) for time_us in times], frames)


def admitted_before(partition: int, records: Sequence[Record]) -> Ruled:
    """Frames that an earlier batch admitted, to be admitted again as they were."""
    return Ruled(received_of(partition, records, AS_STAMPED), np.zeros(len(records), np.uint8))
