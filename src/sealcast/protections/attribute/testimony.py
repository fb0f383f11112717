"""What peers say of themselves, in logs that each signed: read by `check` and `why`, and believed of their writer only.

A peer signs its log about once a second. So the last second before a process was killed may be missing from it, and an
entry that is not there proves nothing; one that is there binds who signed it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sealcast.log import noted
from sealcast.log.peer_log import PeerLogReader
from sealcast.primitives.sign import VerifyKey
from sealcast.trust.handles import OpenRealm
from sealcast.wire.peer_logs import EntryKind, PeerEntry

_MAX_HOPS = 255


def said_by(realm: OpenRealm, topic: str, name: str) -> Iterator[PeerEntry]:
    """What a peer says it did, oldest first, as far as it is kept; nothing where there is no log. Corrupt for what it
    did not sign, or not in this order."""
    state = realm.state()
    directory, key = realm.paths.topic(topic, name).peer_log, VerifyKey(state.entity(name).verify_key)
    with PeerLogReader(directory, state.topic(topic).id, name, key) as log:
        for record in log.records():
            yield from record.entries


def has_spoken(realm: OpenRealm, topic: str, name: str) -> bool:
    """Whether there is a log: its peer ran in a process of peers."""
    return realm.paths.topic(topic, name).peer_log.is_dir()


def heard_until_us(realm: OpenRealm, topic: str, name: str) -> int | None:
    """Up to when a peer heard everything, by its own word; None where it has not said so."""
    try:
        return int(noted.decode(realm.paths.topic(topic, name).heard.read_bytes()[:1024])["heard"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def way_of(realm: OpenRealm, topic: str, event: bytes, subscriber: str) -> list[str]:
    """The peers that an event came by, from its subscriber upwards, as far as logs that are here say so."""
    way, at = list[str](), subscriber
    while len(way) < _MAX_HOPS:
        found = [
            entry.other
            for entry in said_by(realm, topic, at)
            if entry.kind is EntryKind.RECEIVED and entry.event == event
        ]
        if not found or found[0] in way or found[0] not in realm.state().entities:
            return way
        at = found[0]
        way.append(at)
    return way
