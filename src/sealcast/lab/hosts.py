"""Hosts as network namespaces of this machine: each has an address of its own, and a cable that can be cut.

    host --eth0-- cable --port-- bridge, in a namespace of its own: nothing is added to this machine's own network

A host sees this machine's files, but for the directories that are hidden from it, which are empty there. It has no way
to anywhere but to the other hosts. This needs root; `missing` says why there can be no hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final, Self

NOT_HERE: Final = "hosts as network namespaces need root (CAP_SYS_ADMIN, CAP_NET_ADMIN) and the programs ip and mount"
#: Names of our namespaces: who made them, so that what a killed run left is known; which network; which host.
_PREFIX: Final = "sealcast-host"
_OURS: Final = re.compile(rf"^{_PREFIX}-(\d+)-\d+-\w+\b", re.MULTILINE)
_SWITCH: Final = "switch"
_ADDRESSES: Final = "10.213.7."
#: Hides each directory that is named before `--`, and becomes the command after it. The namespace of mounts is its own:
#: `ip netns exec` has made it.
_ALONE: Final = 'while [ "$1" != -- ]; do mount -t tmpfs -o ro,size=4k tmpfs "$1"; shift; done; shift; exec "$@"'
_networks: Final = count()


class Cable:
    """One host's place in a network: its namespace, its address, and its cable to the switch."""

    def __init__(self, network: Cables, name: str, number: int) -> None:
        self._network, self._port = network, f"port{number}"
        self.address = f"{_ADDRESSES}{number}"
        self.namespace = network.namespace(name)

    def inside(self, argv: Sequence[object], hidden: Iterable[Path] = ()) -> list[str]:
        """What runs a program on the host, which finds the `hidden` directories empty."""
        here = ["ip", "netns", "exec", self.namespace, "sh", "-ec", _ALONE, "sh", *map(str, hidden), "--"]
        return [*here, *map(str, argv)]

    def plug(self) -> None:
        """Makes its namespace, and lays its cable to the switch."""
        _ip("netns", "add", self.namespace)
        switch = ("-n", self._network.switch)
        _ip(*switch, "link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        _ip(*switch, "link", "set", self._port, "master", "bridge", "up")
        _ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self.namespace, "link", "set", device, "up")

    def cut(self) -> None:
        """Pulls the cable out of the switch. The host keeps its address, and everything that is sent is lost."""
        _ip("-n", self._network.switch, "link", "set", self._port, "down")

    def heal(self) -> None:
        _ip("-n", self._network.switch, "link", "set", self._port, "up")


class Cables:
    """The places of some hosts, which can reach each other and nobody else. Made and removed by a `with` block."""

    def __init__(self, names: Sequence[str]) -> None:
        self._mark = f"{_PREFIX}-{os.getpid()}-{next(_networks)}"
        self.switch = self.namespace(_SWITCH)
        assert _SWITCH not in names and all(name.isidentifier() for name in names)
        self.of = {name: Cable(self, name, number) for number, name in enumerate(names, 1)}

    def namespace(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def __enter__(self) -> Self:
        sweep()
        try:
            _ip("netns", "add", self.switch)
            _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self.switch, "link", "set", "bridge", "up")
            for cable in self.of.values():
                cable.plug()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends whatever still runs on the hosts, and removes them."""
        for name in (*(cable.namespace for cable in self.of.values()), self.switch):
            _remove(name)


@cache
def missing() -> str | None:
    """Why there can be no hosts here; None if there can."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("mount"):
        return NOT_HERE
    probe = f"{_PREFIX}-{os.getpid()}-{next(_networks)}-probe"
    try:
        _ip("netns", "add", probe)
        _ip("-n", probe, "link", "add", "one", "type", "veth", "peer", "name", "two")
        _ip("netns", "exec", probe, "mount", "-t", "tmpfs", "-o", "ro,size=4k", "tmpfs", "/mnt")
    except subprocess.CalledProcessError as error:
        return f"{NOT_HERE}: {error.stderr.strip()}"
    finally:
        _remove(probe)
    return None


def sweep() -> None:
    """Removes what a run that was killed left: namespaces with our prefix whose maker is gone, and who runs there."""
    for found in _OURS.finditer(_ip("netns", "list")):
        if not Path(f"/proc/{found[1]}").exists():
            _remove(found[0])


def _remove(namespace: str) -> None:
    with suppress(subprocess.CalledProcessError):  # it was never made, or another sweep was faster
        for pid in _ip("netns", "pids", namespace).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        _ip("netns", "delete", namespace)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout
