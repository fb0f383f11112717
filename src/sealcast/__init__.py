"""Sealed events, cast to exactly those who asked for their content.

    publish            admit              match             group            seal             deliver          open
    Event --> Sealed --> Admitted --> Matched pairs --> Groups --> Group-sealed --> Mailbox --> Opened event
    client              |------------------------------ Spark ------------------------------|        client

    import sealcast

    realm = sealcast.Realm.create("market")
    schema = sealcast.Schema.from_json({"attributes": [{"name": "price", "type": "decimal"}]})
    realm.create_topic("quotes", schema, access="members")
    realm.enrol_many(["nyse", "alice"])
    realm.subscribe("quotes", "alice", "price > 100")

    sealcast.Publisher(realm, "quotes", as_="nyse").publish([sealcast.Event({"price": 101}, b"hello")])
    sealcast.run(realm, once=True)                      # the part in the middle, on Spark
    for event in sealcast.Subscriber(realm, "quotes", as_="alice"):
        print(event.publisher, event.attributes, event.payload)

Names are imported when they are first used: neither `import sealcast` nor a client loads Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sealcast.errors import extras_named

if TYPE_CHECKING:
    from sealcast.clients.publisher import Publisher as Publisher
    from sealcast.clients.realm import Realm as Realm
    from sealcast.clients.subscriber import Subscriber as Subscriber
    from sealcast.errors import CannotOpen as CannotOpen
    from sealcast.errors import EventRejected as EventRejected
    from sealcast.errors import FilterRejected as FilterRejected
    from sealcast.errors import Rejected as Rejected
    from sealcast.errors import SealcastError as SealcastError
    from sealcast.model import Event as Event
    from sealcast.model import OpenedEvent as OpenedEvent
    from sealcast.model import Position as Position
    from sealcast.model import Schema as Schema
    from sealcast.pipeline.run import run as run
    from sealcast.protections.attribute.carry import carry as carry
    from sealcast.trust.realm.changes import Right as Right

#: Every public name and where it is.
_NAMES = {
    "CannotOpen": "errors",
    "Event": "model",
    "EventRejected": "errors",
    "FilterRejected": "errors",
    "OpenedEvent": "model",
    "Position": "model",
    "Publisher": "clients.publisher",
    "Realm": "clients.realm",
    "Rejected": "errors",
    "Right": "trust.realm.changes",
    "Schema": "model",
    "SealcastError": "errors",
    "Subscriber": "clients.subscriber",
    "carry": "protections.attribute.carry",
    "run": "pipeline.run",
}
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'sealcast' has no attribute {name!r}")
    with extras_named():
        found = getattr(import_module(f"sealcast.{_NAMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
