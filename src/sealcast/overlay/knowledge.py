"""What a broker knows of secure topics, as pure rules (paper 004, sections 4.8.2 to 4.8.4): no clock, no file, no key.

A topic is secure or plain, and a broker may not know which. It learns that one is secure

    served   from the registry: it was handed the topic's key
    list     from the broker that it connects to when it joins
    token    from the first valid token that it sees for it
    error    from a broker that knows, and returns an error for a message without a token

and never that one is not: what is secure stays secure, whatever anyone says. So whoever lies about topics can make a
plain one unusable, and no secure one open. `list` and `error` are the word of whoever sent them: they are taken from
those whom the authority certified as brokers, and only so many from each.

    message with a valid token       the topic is secure: learnt; on to admission, which checks everything else
    message with an invalid token    discarded; nothing is learnt from it. A broker that sent it is told
    message without a token          on a secure topic: discarded, and a broker that sent it is told;
                                     on any other: delivered to the plain subscriptions, and propagated by its origin
    subscription without a token     on a secure topic: refused; on any other: kept, until the topic turns out to be
                                     secure. Then it is removed and gets nothing more; whoever asks for it again is
                                     told that the topic needs a token

Every rule takes what is known and returns what is known then, and what is to be done (`Step`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from sealcast.errors import Rejected
from sealcast.trust.certificates.certificate import Certificate, Role
from sealcast.trust.tokens.claims import Token
from sealcast.trust.tokens.reasons import TokenReason, refused

TOPIC_BYTES: Final = 16
MAX_BODY_BYTES: Final = 65_536
#: Topics that one broker's word makes secure here.
MAX_CLAIMS_EACH: Final = 65_536
#: Plain subscriptions of one topic, and of all.
MAX_PLAIN_EACH: Final = 4_096
MAX_PLAIN: Final = 65_536


class Source(StrEnum):
    SERVED = "served"
    LIST = "list"
    TOKEN = "token"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Learnt:
    """How a broker came to know that a topic is secure: by whose word."""

    source: Source
    by: str


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """Something for a topic, with its publisher's token or, on what may be a plain topic, without."""

    topic: bytes
    body: bytes
    token: bytes = b""

    def __post_init__(self) -> None:
        if len(self.topic) != TOPIC_BYTES or len(self.body) > MAX_BODY_BYTES:
            raise Rejected(f"a message names a topic by {TOPIC_BYTES} bytes and has at most {MAX_BODY_BYTES}")


class Action(StrEnum):
    """What is to be done with a message."""

    #: On to admission: a token alone admits nothing.
    ADMIT = "admit"
    #: To the topic's plain subscriptions.
    DELIVER = "deliver"
    #: To the other brokers. They do not pass it on: only its origin does.
    PROPAGATE = "propagate"
    #: Tell the broker that sent it that the topic is secure, and that nothing happens without a valid token.
    REFUSE = "refuse"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What one broker knows."""

    secure: Mapping[bytes, Learnt] = field(default_factory=dict)
    #: Subscriptions without a token, by topic, in the order in which they came.
    plain: Mapping[bytes, tuple[str, ...]] = field(default_factory=dict)

    def is_secure(self, topic: bytes) -> bool:
        return topic in self.secure


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known then, and what is to be done."""

    knowledge: Knowledge
    actions: tuple[Action, ...] = ()


# --- learning -----------------------------------------------------------------------------------------


def learn(known: Knowledge, topics: Iterable[bytes], how: Learnt) -> Outcome:
    """These topics are secure: their plain subscriptions end here."""
    fresh = [topic for topic in dict.fromkeys(topics) if topic not in known.secure]
    if not fresh:
        return Outcome(known)
    plain = {topic: names for topic, names in known.plain.items() if topic not in fresh}
    return Outcome(Knowledge({**known.secure, **dict.fromkeys(fresh, how)}, plain))


def learn_list(known: Knowledge, sender: Certificate, topics: Iterable[bytes]) -> Outcome:
    """The list of the broker that one connects to. Rejected when it is nobody's who may say so."""
    return _by_word(known, sender, topics, Source.LIST)


def learn_error(known: Knowledge, sender: Certificate, topic: bytes) -> Outcome:
    """The error of a broker that knows the topic."""
    return _by_word(known, sender, (topic,), Source.ERROR)


def _by_word(known: Knowledge, sender: Certificate, topics: Iterable[bytes], source: Source) -> Outcome:
    if Role.BROKER not in sender.roles:
        raise Rejected(f"{sender.name!r} is no broker: what it says of topics is not taken for true")
    given = list(dict.fromkeys(topics))
    if any(len(topic) != TOPIC_BYTES for topic in given):
        raise Rejected(f"broker {sender.name!r} names topics that are none")
    said = sum(how.by == sender.name and how.source in (Source.LIST, Source.ERROR) for how in known.secure.values())
    fresh = [topic for topic in given if topic not in known.secure]
    return learn(known, fresh[: max(0, MAX_CLAIMS_EACH - said)], Learnt(source, sender.name))


# --- messages -----------------------------------------------------------------------------------------


def take(known: Knowledge, message: TopicMessage, sender: str | None, valid: Token | None) -> Outcome:
    """A message from another broker, or from an entity (no `sender`); `valid` is its token, if a gate took it for one
    (`TokenGate.learn`)."""
    if valid is not None and valid.claims.topic == message.topic:
        step = learn(known, (message.topic,), Learnt(Source.TOKEN, valid.claims.issuer))
        return replace(step, actions=(Action.ADMIT,))
    if message.token or known.is_secure(message.topic):
        told = sender is not None and known.is_secure(message.topic)
        return Outcome(known, (Action.DISCARD, Action.REFUSE) if told else (Action.DISCARD,))
    deliver = (Action.DELIVER,) if message.topic in known.plain else ()
    return Outcome(known, deliver if sender is not None else (*deliver, Action.PROPAGATE))


# --- subscriptions ------------------------------------------------------------------------------------


def subscribe(known: Knowledge, topic: bytes, subscriber: str) -> Outcome:
    """A subscription without a token: TokenRejected where one is needed."""
    if len(topic) != TOPIC_BYTES:
        raise Rejected(f"a topic is named by {TOPIC_BYTES} bytes")
    if known.is_secure(topic):
        raise refused(
            TokenReason.ABSENT,
            "this topic is secure, and the subscription came without a token",
            "ask the topic's key center for one: sealcast token request",
        )
    names = known.plain.get(topic, ())
    if subscriber in names:
        return Outcome(known)
    if len(names) >= MAX_PLAIN_EACH or sum(map(len, known.plain.values())) >= MAX_PLAIN:
        raise Rejected("this broker keeps no more subscriptions without tokens", hint="try another broker")
    return Outcome(replace(known, plain={**known.plain, topic: (*names, subscriber)}))


def unsubscribe(known: Knowledge, topic: bytes, subscriber: str) -> Outcome:
    names = tuple(name for name in known.plain.get(topic, ()) if name != subscriber)
    rest = {other: kept for other, kept in known.plain.items() if other != topic}
    return Outcome(replace(known, plain={**rest, topic: names} if names else rest))
