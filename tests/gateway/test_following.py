"""Waiting for mail: long-poll, one endless answer, and what ends both."""

from __future__ import annotations

import threading
from typing import Any

from sealcast.clients.publisher import Publisher
from sealcast.model.event import Event
from sealcast.trust.deployment import Realm
from tests.clients.pump import pump
from tests.gateway.world import AT, TOPIC, RunningGateway


def publish(realm: Realm, *prices: int) -> None:
    with Publisher(realm, TOPIC, "nyse") as publisher:
        publisher.publish([Event({"price": price}, b"x") for price in prices])
    pump(realm, TOPIC)


def test_a_long_poll_ends_with_the_mail(served: RunningGateway, realm: Realm) -> None:
    alice = served.client("alice")
    end = alice.get(f"{AT}/mail/ledger").value["end"]
    assert alice.get(f"{AT}/mail/ledger", from_=end, wait=1).value == {"records": [], "start": 0, "end": end}
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(alice.get(f"{AT}/mail/ledger", from_=end, wait=60).value))
    waiting.start()
    publish(realm, 300)
    waiting.join(120)
    assert [record[0] for record in answers[0]["records"]] == [end]
    assert alice.get(f"{AT}/mail/ledger", from_=end + 5).status == 404
    assert alice.get(f"{AT}/mail/ledger/at", time_us=0).value == {"offset": 0}


def test_a_follower_gets_pieces_before_the_records_that_name_them(served: RunningGateway, realm: Realm) -> None:
    publish(realm, 400)
    alice = served.client("alice")
    end = alice.get(f"{AT}/mail/ledger").value["end"]
    coming = alice.follow(f"{AT}/mail/follow", from_=end - 1)
    items = [next(coming) for _ in range(3)]
    assert [item[0] for item in items] == ["reseals", "piece", "record"]
    piece = items[1]
    assert (realm.paths.topic(TOPIC).pieces / piece[1]).read_bytes() == piece[2]
    publish(realm, 5, 500)
    more = [next(coming), next(coming)]
    assert [item[0] for item in more] == ["piece", "record"] and more[1][1] == end
    alice.close()


def test_suspended_notes_and_cursors_are_ones_own(served: RunningGateway, realm: Realm) -> None:
    alice = served.client("alice")
    assert alice.get(f"{AT}/suspended").value == {"notes": {}}
    from sealcast.gateway.reports import cursor_report
    from sealcast.log.ledger import LedgerReader

    publish(realm, 600)
    paths, place = realm.paths.topic(TOPIC), [1, 0, 0]
    with LedgerReader(paths.ledger) as ledger:
        tag = ledger.tag_before(1)
    said = cursor_report(realm.id, realm.state().topic(TOPIC).id, "broker", "mail", "alice", place, tag)
    body = {"cursor": place, "tag": tag, "signature": realm.identity("alice").signer.sign(said)}
    assert served.client("bob").put(f"{AT}/cursors/alice", body).status == 403
    assert alice.put(f"{AT}/cursors/alice", body | {"cursor": [2, 0, 0]}).status == 422
    assert alice.put(f"{AT}/cursors/alice", body).status == 204
    assert (paths.cursors / "alice.cursor").exists()
