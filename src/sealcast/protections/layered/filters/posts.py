"""Posting filters to a broker of a layered topic: signed, numbered, appended to its log, durable on return.

    NODE/topics/TOPIC/filters/in         the posts from everyone below the broker (`log.post_log`)

Subscribers and brokers post alike; the keeper decides (keeper.py), each sender in its turn (queue.py).

**Numbers.** The keeper takes a number once and none below it, for each sender, tree and kind of post. Who wants an
effect exactly once chooses the number, writes down what it is about to post, and posts the same under the same number
after a crash. Who names no number gets one by the clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sealcast.errors import Misuse
from sealcast.protections.layered.tree import TreeId
from sealcast.trust.handles import OpenRealm
from sealcast.trust.keys.identity import Identity
from sealcast.wire import posts
from sealcast.wire.frame import token_digest
from sealcast.wire.posts import Filter, PostHeader


class Numbered(NamedTuple):
    """What is to be posted in one tree. More than fits into one post goes into several, numbered on from this."""

    tree: TreeId
    filters: Sequence[Filter]
    number: int
    #: The first of them says that everything before has ended.
    fresh: bool = False


def signed_posts(topic_id: bytes, sender: Identity, receiver: str, what: Numbered, token: bytes = b"") -> list[bytes]:
    """The posts that say it, in order."""
    made = []
    for part, filters in enumerate(posts.batches(what.filters)):
        body, fresh = posts.encode_body(filters), what.fresh and part == 0
        header = PostHeader(
            topic_id,
            receiver,
            sender.name,
            *what.tree,
            what.number + part,
            fresh,
            posts.digest(body),
            token_digest(token),
        )
        made.append(posts.encode(header, sender.signer.sign(posts.to_be_signed(header)), body, token))
    return made


def post_many(
    realm: OpenRealm, topic: str, sender: Identity, to_broker: str, what: Iterable[Numbered], token: bytes = b""
) -> None:
    """All of them in one durable append; Busy, and nothing was posted, when the broker does not keep up."""
    about = realm.state().topic(topic)
    made = [each for one in what for each in signed_posts(about.id, sender, to_broker, one, token)]
    if not made:
        raise Misuse("there is nothing to post")
    with realm.site.of(sender.name).posts(topic, to_broker) as log:
        log.check_share(sender.name)
        log.append(made)
