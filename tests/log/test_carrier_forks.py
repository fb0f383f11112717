"""Programs that fork while they hold a carrier open: the child ends as if it had none, and the parent goes on."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys

import pytest

from sealcast.bench.carrier_servers import CarrierServer

#: A program of somebody who knows nothing of this: its child collects its garbage, and ends as programs end.
PROGRAM = """
import gc, os, signal, sys
from sealcast.log.carriers import CarrierAddress, Placement, connect

address, name, prepare = sys.argv[1:]
carrier = connect(CarrierAddress.parse(address), {})
carrier.create(name, Placement(2))
shared, alone = carrier.partition(name, 0), carrier.partition(name, 1)
alone.become_writer()
for partition, append in ((shared, shared.append), (alone, alone.append_alone)):
    append([(b"head", b"before")])
    assert [each.data for each in partition.fetch(*partition.bounds()) if each.data] == [b"before"]
exec(prepare)
child = os.fork()
if not child:
    signal.alarm(30)
    cycle = [carrier, shared, alone]
    cycle.append(cycle)
    del carrier, shared, alone, partition, append, cycle
    gc.collect()
    sys.exit(7)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
for partition, append in ((shared, shared.append), (alone, alone.append_alone)):
    append([(b"head", b"after")])
    assert [each.data for each in partition.fetch(*partition.bounds()) if each.data] == [b"before", b"after"]
print(ended)
"""
#: The child gives the handles of its parent back.
FORGETS = "from sealcast.log import kafka_handles; kafka_handles._HANDLES.clear()"


def ended(server: CarrierServer, prepare: str = "") -> int:
    """How the child of the program ended."""
    command = [sys.executable, "-c", PROGRAM, server.address, secrets.token_hex(6), prepare]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("kind", ["kafka", "nats"])
def test_a_child_lets_the_clients_of_its_parent_be(request: pytest.FixtureRequest, kind: str) -> None:
    assert ended(request.getfixturevalue(kind)) == 7


def test_one_that_ends_them_breaks(request: pytest.FixtureRequest) -> None:
    """By an abort, a jump into nowhere or, if it waits for ever, the alarm."""
    assert -ended(request.getfixturevalue("kafka"), FORGETS) in (signal.SIGABRT, signal.SIGSEGV, signal.SIGALRM)
