"""What subscribers' peers refuse, whoever sends it, and what is left of a process that dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sealcast import Right
from sealcast.errors import CannotOpen, NotFound, SealcastError
from sealcast.model.rejection import Reason
from sealcast.primitives.sign import SigningKey
from sealcast.protections.attribute.carry import PeerCarrier
from sealcast.protections.attribute.incoming import SubscriberPeer
from sealcast.protections.attribute.open import AttributeOpener, NotOurs
from sealcast.protections.attribute.publish import inside_head, inside_record
from sealcast.protections.frames import FrameSealer
from sealcast.wire import frame
from sealcast.wire.carried import CarriedEvent
from sealcast.wire.records import RecordCodec
from tests.cli.shell import sealcast
from tests.protections.attribute.ward import SCHEMA, TOPIC, Ward

# --- what peers refuse ----------------------------------------------------------------------------------


def looked_at(ward: Ward, event: CarriedEvent, name: str = "nurse") -> Reason | None:
    """Why the peer of a subscriber refuses an event; None if it takes it."""
    peer = SubscriberPeer(ward.realm, TOPIC, name)
    try:
        found = peer.look_at([event])
    finally:
        peer.close()
    assert len(found.events) + len(found.rejected) == 1
    return found.rejected[0].reason if found.rejected else None


def resigned(ward: Ward, event: CarriedEvent, by: str | None = None, **changes: object) -> CarriedEvent:
    """The event under a header that somebody changed and signed: its publisher, unless told."""
    header = replace(frame.parse_signed(event.signed).header, **changes)  # type: ignore[arg-type]
    signer = ward.realm.identity(by or header.publisher).signer if by != "nobody" else SigningKey.generate()
    return replace(event, signed=frame.encode_signed(header, signer.sign(frame.to_be_signed(header))))


HOUR = 3_600_000_000
ALTERED: dict[Reason, Callable[[Ward, CarriedEvent], CarriedEvent]] = {
    Reason.TOPIC: lambda ward, event: resigned(ward, event, topic=bytes(16)),
    Reason.TOKEN: lambda ward, event: replace(event, token=b""),
    Reason.SIGNATURE: lambda ward, event: resigned(ward, event, by="nobody"),
    Reason.EPOCH: lambda ward, event: resigned(ward, event, epoch=2),
    Reason.TIME: lambda ward, event: resigned(
        ward, event, time=frame.parse_signed(event.signed).header.time + HOUR // 2
    ),
    Reason.SCHEMA: lambda ward, event: resigned(ward, event, schema=bytes(32)),
    Reason.ROOT: lambda ward, event: replace(event, message=event.message[:-1] + bytes([event.message[-1] ^ 1])),
    Reason.PUBLISHER: lambda ward, event: resigned(ward, event, by="mallory", publisher="mallory"),
}


@pytest.mark.parametrize("reason", ALTERED, ids=str)
def test_an_altered_event_is_refused_with_the_reason(ward: Ward, reason: Reason) -> None:
    ward.publish([3, 4])
    first, second = ward.outgoing()
    assert looked_at(ward, first) is None
    assert looked_at(ward, ALTERED[reason](ward, first)) is reason
    assert looked_at(ward, replace(first, position=second.position)) is Reason.ROOT
    assert looked_at(ward, replace(first, path=second.path)) is Reason.ROOT
    elsewhere = replace(first.position, partition=first.position.partition + 1)
    assert looked_at(ward, replace(first, position=elsewhere)) is Reason.PUBLISHER


def test_an_event_of_somebody_who_may_not_publish_now_is_refused(ward: Ward) -> None:
    ward.publish([3])
    (event,) = ward.outgoing()
    ward.realm.revoke(TOPIC, "monitor", [Right.PUBLISH])
    assert looked_at(ward, event) is Reason.RIGHT
    ward.realm.revoke_entity("monitor")
    assert looked_at(ward, event) in (Reason.REVOKED, Reason.PUBLISHER, Reason.TOKEN)


def test_an_event_comes_once_however_often_it_is_carried(ward: Ward) -> None:
    ward.publish([3, 200])
    events = ward.outgoing()
    peer = SubscriberPeer(ward.realm, TOPIC, "nurse")
    for _ in range(2):
        counted = peer.keep(peer.look_at([*events, *events]))
    peer.close()
    assert counted == {"deliveries": 0, "rejected_replay": 2}, "the other one is somebody else's"
    again = SubscriberPeer(ward.realm, TOPIC, "nurse")
    assert not again.look_at(events).events, "it remembers over a restart"
    again.close()
    assert ward.got("nurse") == [b"monitor 3"]


def test_a_ciphertext_of_another_publisher_cannot_be_sent_as_ones_own(ward: Ward) -> None:
    """mallory may publish: it wraps monitor's ciphertext into a frame that it signs itself, with its own token."""
    ward.publish([3])
    (event,) = ward.outgoing()
    about, state = ward.realm.state().topic(TOPIC), ward.realm.state()
    mallory = ward.realm.identity("mallory")
    token = ward.realm.token(TOPIC, "mallory")
    pair = mallory.pair_key(state, TOPIC)
    sealer = FrameSealer(RecordCodec(SCHEMA), about.id, 1, "mallory", pair, mallory.signer, token=token)
    data = sealer.seal_messages([event.message], ward.realm.clock())
    with ward.realm.outbox(TOPIC, "mallory") as log:
        log.partition(0).append([data])
    counted = ward.carry()
    assert counted["rejected_seal"] == 1 and ward.got("nurse") == [b"monitor 3"]
    found = sealcast("rejected", "list", "--json", "--realm", ward.realm.paths.root).document["rejected"]
    assert [(each["reason"], each["broker"]) for each in found] == [("seal", "nurse")]
    assert "somebody else than mallory made this event" in found[0]["detail"]


def test_a_frame_of_another_in_ones_log_goes_nowhere(ward: Ward) -> None:
    ward.publish([3])
    with ward.realm.outbox(TOPIC, "monitor") as log, ward.realm.outbox(TOPIC, "pump") as other:
        (record,) = log.partition(0).read(0, 1)
        other.partition(0).append([record.data])
    counted = ward.carry()
    assert (counted["admitted"], counted["rejected_publisher"]) == (1, 1)
    assert ward.got("nurse") == [b"monitor 3"]


def test_a_message_that_is_no_sealed_event_is_refused_at_its_publishers_peer(ward: Ward) -> None:
    state, about = ward.realm.state(), ward.realm.state().topic(TOPIC)
    pump, token = ward.realm.identity("pump"), ward.realm.token(TOPIC, "pump")
    pair = pump.pair_key(state, TOPIC)
    sealer = FrameSealer(RecordCodec(SCHEMA), about.id, 1, "pump", pair, pump.signer, token=token)
    with ward.realm.outbox(TOPIC, "pump") as log:
        log.partition(0).append([sealer.seal_messages([b"rubbish", b"AH1" + bytes(64)], ward.realm.clock())])
    assert ward.carry()["rejected_event"] == 2


def test_what_is_inside_names_its_publisher_and_its_topic() -> None:
    inside = inside_head(bytes(16), "monitor") + b"record"
    assert inside_record(inside, bytes(16), "monitor") == b"record"
    for topic, name in ((bytes(16), "monito"), (bytes(16), "monitorr"), (b"\1" * 16, "monitor")):
        with pytest.raises(CannotOpen, match="somebody else"):
            inside_record(inside, topic, name)
    for short in (b"", bytes(16), bytes(16) + b"\xff"):
        with pytest.raises(CannotOpen):
            inside_record(short, bytes(16), "monitor")


def test_whoever_has_no_key_that_fits_is_told_so(ward: Ward) -> None:
    ward.publish([100])
    (event,) = ward.outgoing()
    for name in ("nurse", "doctor"):
        with ward.ring(name) as ring, pytest.raises(NotOurs):
            AttributeOpener.of(ward.realm.state, TOPIC, ring).open(event)


def test_pooled_keys_open_no_more_than_each_alone(ward: Ward) -> None:
    """nurse and doctor put all that they have together."""
    ward.publish([100])
    (event,) = ward.outgoing()
    with ward.ring("nurse") as nurse, ward.ring("doctor") as doctor:
        pooled = [*nurse.subscribing(1), *doctor.subscribing(1)]
    with pytest.raises(NotOurs):
        AttributeOpener(ward.realm.state, TOPIC, lambda epoch: pooled).open(event)


# --- crashes --------------------------------------------------------------------------------------------


def test_a_process_that_dies_before_frames_count_as_sent_delivers_nothing_twice(ward: Ward) -> None:
    ward.publish([1, 2, 200])

    class Died(Exception):
        pass

    def dies(topic: str, events: object) -> None:
        raise Died

    with pytest.raises(Died), PeerCarrier(ward.realm, [TOPIC], onward=dies) as carrier:
        carrier.once()
    counted = ward.carry()
    assert (counted["admitted"], counted["rejected_replay"]) == (3, 3), "inboxes had them"
    assert (ward.got("nurse"), ward.got("doctor")) == ([b"monitor 1", b"monitor 2"], [b"monitor 200"])
    assert sealcast("check", TOPIC, "--realm", ward.realm.paths.root).code == 0


def test_the_same_carrier_goes_on_after_a_failure(ward: Ward) -> None:
    ward.publish([1])
    failed = list[int]()

    def once(topic: str, events: object) -> None:
        if not failed:
            failed.append(1)
            raise NotFound("nobody there")

    with PeerCarrier(ward.realm, [TOPIC], onward=once) as carrier:
        with pytest.raises(NotFound):
            carrier.once()
        assert carrier.once()["admitted"] == 1, "its own frames are no replays to it"
    assert ward.got("nurse") == [b"monitor 1"]


def test_two_processes_do_not_run_one_peer(ward: Ward) -> None:
    ward.publish([1])
    with PeerCarrier(ward.realm, [TOPIC]) as carrier:
        carrier.once()
        with pytest.raises(SealcastError, match="is being run by process"):
            ward.carry()
