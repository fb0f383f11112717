"""What the tests of the data lifecycle attack with: stolen keys on copies of a realm, and a handle that checks none."""

from __future__ import annotations

import shutil
from pathlib import Path

from sealcast import Realm
from sealcast.lab.theft.loot import steal
from sealcast.lab.theft.tries import Tries
from sealcast.trust.realm.state import EMPTY, RealmState


def opened(realm: Realm, topic: str, *whose: str) -> int:
    """How many sealed events and frames of the topic that lie here these parties' keys open."""
    found = [Tries(realm, steal(realm, name, tokens=False)).reads(topic) for name in whose]
    return sum(each.opened + each.frames for each in found)


def with_keys_of(data: Path, keys: Path, to: Path) -> Realm:
    """Sealed files and registry of one copy of the realm, key files of another."""
    shutil.copytree(data, to)
    for part in ("secrets", "entities"):
        shutil.rmtree(to / part)
        shutil.copytree(keys / part, to / part)
        for head in (to / part).rglob("*.head"):
            head.unlink()
    return Realm(to)


class OpenUnread:
    """A handle whose owner did not look at the registry: nothing but what a backup asks for."""

    def __init__(self, realm: Realm) -> None:
        self.paths, self.name, self.id, self.clock = realm.paths, realm.name, realm.id, realm.clock
        self.registry = self

    def version(self) -> int:
        return 0

    def state(self) -> RealmState:
        return EMPTY
