"""What Sealcast speaks of: events, schemas, subscriptions and the type of each stage. Standard library only."""

from sealcast.model.event import Event, OpenedEvent, Position
from sealcast.model.rejection import Reason, Rejection
from sealcast.model.schema import Attribute, Schema, Type, Value
from sealcast.model.subscription import Subscription

__all__ = [
    "Attribute",
    "Event",
    "OpenedEvent",
    "Position",
    "Reason",
    "Rejection",
    "Schema",
    "Subscription",
    "Type",
    "Value",
]
