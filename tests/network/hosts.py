"""Hosts of the tests: network namespaces (sealcast.lab.hosts) with a disk of their own.

    with Network(directory, "gate", "nyse", "bob") as hosts:
        hosts["nyse"].step("pub", ...)          a command there; see machine.py
        hosts["nyse"].cut()                     nothing comes through, in either direction; connections hang
        hosts["nyse"].heal()                    they go on

A host sees this machine's files, but for the directories of the other hosts, which are empty there. It has no way to
anywhere but to the other hosts.

This needs root. Tests ask for the fixture `network` (tests/network/conftest.py), which skips them by one reason where
that is missing, and counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from sealcast.lab.hosts import NOT_HERE as NOT_HERE
from sealcast.lab.hosts import Cables
from sealcast.lab.hosts import missing as missing
from sealcast.lab.hosts import sweep as sweep
from tests.network.machine import Machine


class Host(Machine):
    """One host of a network."""

    def __init__(self, network: Network, name: str) -> None:
        super().__init__(network.directory / name)
        self.name, self._network, cable = name, network, network.cables.of[name]
        self.address, self.namespace, self._cable = cable.address, cable.namespace, cable
        self.cut, self.heal = cable.cut, cable.heal
        #: Nobody else's address, wherever the tests run.
        self.environment["SPARK_LOCAL_IP"] = "127.0.0.1"

    def command(self, argv: Sequence[object]) -> list[str]:
        hidden = [host.directory for host in self._network.values() if host is not self]
        return self._cable.inside(super().command(argv), hidden)


class Network(Mapping[str, Host]):
    """Hosts by their names, which can reach each other and nobody else."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.directory, self.cables = directory, Cables(names)
        self._hosts = {name: Host(self, name) for name in names}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __enter__(self) -> Self:
        self.cables.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.cables.close()
