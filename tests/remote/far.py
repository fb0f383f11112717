"""The world of the conformance suite with its clients elsewhere: each has a home of its own and the address of a
gateway, and nothing else of the realm."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self
from unittest.mock import patch

from sealcast import Realm, Right, run
from sealcast.log import files
from sealcast.protections.attribute.carry import PeerCarrier
from sealcast.protections.port import client_side
from sealcast.trust.handles import EntityRealm
from sealcast.trust.layout import Layout, read_mark
from sealcast.wire.carried import CarriedEvent
from tests.cli.shell import Result, sealcast
from tests.copies import copy_realm
from tests.protections.world import FILTERS, PUBLISHERS, TOPIC, World
from tests.remote.world import PATIENCE_S, ServedRealm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Commands that read brokers' files or need their secrets. Clients elsewhere are refused, and told so by name.
NOT_FROM_AFAR = ("audit", "check", "rejected list", "replay", "why")


class FarWorld(World):
    """One topic under one protection, behind a gateway."""

    def _open(self, realm: Realm) -> None:
        super()._open(realm)
        if "gate" not in realm.state().entities:
            realm.add_gateway("gate", ["127.0.0.1"])
        self.served = ServedRealm(realm.paths.root.parent, realm)
        self._members: dict[str, EntityRealm] = {}
        self._homes = {name: self._home(name) for name in (*PUBLISHERS, *FILTERS, "mallory")}

    def _home(self, name: str) -> Path:
        """A new home; or, of a copy, the home as it was, at the copy's gateway."""
        directory = self.realm.paths.root.parent / "homes" / name
        if not directory.exists():
            directory.parent.mkdir(exist_ok=True)
            home = self.served.home(name).rename(directory)
            self.realm.paths.entity_key(name).unlink()  # as if it had been made in the home
            return home
        paths = Layout(directory)
        files.replace_file(paths.mark, replace(read_mark(paths), gateway=self.served.address).to_bytes())
        return directory

    def copy(self, directory: Path) -> Self:
        for name, home in self._homes.items():
            copy_realm(home, directory.parent / "homes" / name)
        return super().copy(directory)

    def close(self) -> None:
        super().close()
        self.served.close()

    # --- as its clients -------------------------------------------------------------------------------

    def member(self, name: str) -> EntityRealm:
        """By the gateway's address, from the client's own home."""
        if name not in self._members:
            with patch.dict(os.environ, SEALCAST_HOME=str(self._homes[name])):
                self._members[name] = EntityRealm(self.served.address)
        return self._members[name]

    def subscribe(self, name: str, text: str) -> None:
        with client_side(self.protection).interests(self.member(name), TOPIC, name) as interests:
            interests.add(text)
            assert interests.trouble is None, interests.trouble

    def ask(self, name: str, *arguments: object, code: int = 0) -> Result:
        with patch.dict(os.environ, SEALCAST_HOME=str(self._homes[name])):
            done = sealcast(*arguments, "--realm", self.served.address)
        assert done.code == code, done.err
        return done

    def refuses(self, name: str, *arguments: object) -> bool:
        words = [str(each) for each in arguments]
        command = next((each for each in NOT_FROM_AFAR if words[: each.count(" ") + 1] == each.split()), None)
        if command is None:
            return False
        said = self.ask(name, *arguments, code=1).err
        assert f"`sealcast {command}` needs the realm itself" in said and self.served.address in said, said
        return True

    def lags(self) -> dict[str, int]:
        """As each client's own `status` says."""
        found = dict[str, int]()
        for name in FILTERS:
            (topic,) = self.ask(name, "status", "--json", "--topic", TOPIC).document["topics"]
            found |= topic["lag"]
        return found

    def settle(self) -> None:
        """A client hears of a change with the next answer, and within a second in any case."""
        version, until = self.realm.state().version, time.monotonic() + PATIENCE_S
        for name, member in self._members.items():
            while member.state().version < version:
                assert time.monotonic() < until, f"{name} has not heard of version {version}"
                time.sleep(0.05)

    def _look(self) -> None:
        """Subscribers who follow a topic tell its brokers what they have to know, a new publisher's tree among it."""
        for name in FILTERS:
            if self.realm.state().may(Right.SUBSCRIBE, TOPIC, name, self.realm.clock()):
                with self.reader(name) as reader:
                    reader.poll(max_events=1)
                    assert reader.trouble is None, reader.trouble

    # --- as whoever carries events --------------------------------------------------------------------

    def run(self, spark: SparkSession | None = None) -> dict[str, int]:
        """The brokers are where the realm is: on Spark, or their kernels without it. Peers are in their homes."""
        if self.protection.peers:
            return self._carry()
        self.settle()
        self._look()
        if spark or self.spark:
            return run(self.realm, [TOPIC], once=True, spark=spark or self.spark)
        return dict(self.served.pump())

    def _carry(self) -> dict[str, int]:
        """A peer in every home. What one hands on, all others are given."""
        with ExitStack() as held:
            carriers = dict[str, PeerCarrier]()
            done = Counter[str]()

            def onward(sender: str, topic: str, events: Sequence[CarriedEvent]) -> None:
                for name, other in carriers.items():
                    if name != sender:
                        done.update(other.deliver(topic, events))

            for name in self._homes:
                made = PeerCarrier(self.member(name), [TOPIC], onward=partial(onward, name))
                carriers[name] = held.enter_context(made)
            for carrier in carriers.values():
                carrier.look(TOPIC)
            for carrier in carriers.values():
                done.update(carrier.once())
        return dict(done)
