"""sealcast maintain: what falls due by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sealcast.cli import talk
from sealcast.cli.epochs import Messages
from sealcast.errors import Rejected, SealcastError, Unavailable

if TYPE_CHECKING:
    from sealcast.trust.admin.maintenance import Maintained
    from sealcast.trust.deployment import Realm

#: How often a long run looks for what is due. Half-lives are hours: a minute late is on time.
EVERY_S: Final = 60.0

app = talk.Commands()


@app.command(no_args_is_help=False, epilog="Example: sealcast maintain --json")
def maintain() -> None:
    """Do what is due: renew certificates and tokens past half of their life, and replace keys that are worn out.

    A running pipeline does this by itself. Where no pipeline runs, run this now and then, such as once an hour: tokens
    live for a day unless their topic says otherwise, and a subscription ends with its token. This command can only do
    what the secrets on this machine allow.
    """
    here = talk.open_realm()
    done = here.maintain(Messages(here).counts())
    said, advertised = list(_said(here)), _advertised(here)
    document = {
        "certificates": list(done.certificates),
        "rotated": dict(done.rotated),
        "tokens": dict(done.tokens),
        "told": len(said),
        "layer_keys": {"announced": dict(done.announced), "forgotten": dict(done.forgotten)},
        "receiving_keys": list(done.receiving),
        "forgot_epochs": list(done.forgot),
        "deleted_topics": list(done.deleted),
        "removed_nodes": {topic: list(names) for topic, names in done.mended.items()},
        "advertised": advertised,
    }
    again = (f"topic {topic!r} was advertised again" for topic in advertised)
    talk.answer(document, *_lines(done), *said, *again, empty="nothing is due")


@contextmanager
def upkeep(realm: Realm, every_s: float = EVERY_S) -> Iterator[None]:
    """Does what is due, before the block and every now and then while it lasts: a pipeline that runs for weeks must
    not see its subscribers' tokens end one after the other."""
    stop, sealed = threading.Event(), Messages(realm)
    _once(realm, sealed)

    def again() -> None:
        while not stop.wait(every_s):
            _once(realm, sealed)

    thread = threading.Thread(target=again, name="upkeep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _once(realm: Realm, sealed: Messages) -> None:
    try:
        for line in (*_lines(realm.maintain(sealed.counts())), *_said(realm)):
            talk.note(line)
    except SealcastError as error:
        # A registry that is away, keys under another lock: it may pass, and what is due now is still due in a minute.
        # Nobody's events should wait for it.
        talk.warn(f"what is due was not done: {error.message}")


def _said(realm: Realm) -> Iterator[str]:
    """Subscribers whose keys are here tell their brokers what those do not know yet."""
    from sealcast.protections.port import client_side

    for topic, found in realm.state().topics.items():
        for name, done in client_side(found.topic.protection).refresh_here(realm, topic):
            if isinstance(done, SealcastError):
                talk.warn(f"{name!r} could not say what it wants on topic {topic!r}: {done.message}")
            elif done and found.topic.protection.peers:
                yield f"topic {topic!r}: {name!r} asked its key center for what it lacked"
            elif done:
                yield f"topic {topic!r}: the broker of {name!r} was told what it wants"


def _advertised(here: Realm) -> list[str]:
    """Topics whose owners' keys are here, and whose advertisements have had half of their life: advertised again."""
    from sealcast.cli.offers import at_hand
    from sealcast.control.discovery.embedded import nodes, owner_of, renew_topics

    owners = {owner_of(found.topic) for found in here.state().topics.values()} if nodes(here) else set()
    present = [identity for name in sorted(owners) if (identity := at_hand(here, name)) is not None]
    renewed = list[str]()
    for identity in present:
        try:
            renewed += renew_topics(here, identity)
        except (Rejected, Unavailable) as error:
            talk.warn(f"topics of {identity.name!r} were not advertised again: {error.message}")
    return renewed


def _lines(done: Maintained) -> Iterator[str]:
    for name in done.certificates:
        yield f"{name!r} has a new certificate"
    for topic, why in done.rotated.items():
        yield f"topic {topic!r} has new keys: {why}"
    for topic, count in done.tokens.items():
        yield f"topic {topic!r}: new tokens for {talk.counted(count, 'subscriber')}"
    for topic, names in done.mended.items():
        yield f"topic {topic!r}: {', '.join(names)} left the overlay because they are revoked; those below moved up"
    for topic, count in done.announced.items():
        yield f"topic {topic!r}: {talk.counted(count, 'agreement key')} announced"
    for topic, count in done.forgotten.items():
        yield f"topic {topic!r}: {talk.counted(count, 'old agreement key')} forgotten"
    for topic in done.receiving:
        yield f"topic {topic!r}: a broker announced by which key it is handed the next epoch's"
    for center in done.forgot:
        yield f"key center {center!r} forgot keys of past epochs that nobody needs"
    for topic in done.deleted:
        yield f"topic {topic!r} was deleted: what lay here of it was removed"
