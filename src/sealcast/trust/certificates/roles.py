"""What an entity is in its realm, as its certificate says it and the registry records it."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """Who manages what. Whoever publishes and subscribes is an `entity`; the others run the realm for them."""

    ENTITY = "entity"
    #: Runs the pipeline: is handed the keys of the topics that it serves.
    BROKER = "broker"
    #: Makes the keys of topics and signs the tokens for them.
    KEY_CENTER = "key-center"
    #: Keeps advertisements of topics.
    DISCOVERY = "discovery"
    #: Answers publishers and subscribers on other machines (`sealcast gateway`): holds no key of any topic.
    GATEWAY = "gateway"
    #: Signs certificates.
    AUTHORITY = "authority"
