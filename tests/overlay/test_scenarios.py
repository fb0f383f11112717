"""Random days of several brokers: whatever happens in whatever order, everyone gets what is due to it, once."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from sealcast.errors import Misuse
from tests.effort import examples
from tests.overlay.world import World

BROKERS = ("broker", "b1", "b2")
NAMES = ("alice", "bob", "carol")

brokers = st.sampled_from(BROKERS)
names = st.sampled_from(NAMES)
prices = st.lists(st.integers(0, 9), min_size=1, max_size=4)
steps = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(("p0", "p1")), brokers, prices),
    st.tuples(st.just("publish"), st.sampled_from(("p0", "p1")), brokers, prices),
    st.tuples(st.just("run"), brokers),
    st.tuples(st.just("run"), brokers),
    st.tuples(st.just("forward"), brokers),
    st.tuples(st.just("forward"), brokers),
    st.tuples(st.just("move"), names, brokers),
    st.tuples(st.just("move"), names, brokers),
    st.just(("settle",)),
    st.just(("settle",)),
    st.tuples(st.just("read"), names, st.integers(1, 3)),
    st.tuples(st.just("restart"), names),
    st.tuples(st.just("inject"), brokers, brokers),
    st.tuples(st.just("newcomer"), brokers),
)


def play(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("publish", str(who), str(broker), list(given)):
            world.publish(who, broker, given)
        case ("run", str(broker)):
            world.run(broker)
        case ("forward", str(broker)):
            world.forward(broker)
        case ("move", str(name), str(broker)):
            with suppress(Misuse):  # it is there already, or still on its way
                world.move(name, broker)
        case ("settle",):
            world.settle()
        case ("read", str(name), int(most)):
            world.read(name, most)
        case ("restart", str(name)):
            world.restart(name)
        case ("inject", str(one), str(other)) if one != other:
            world.inject(one, other)
        case ("newcomer", str(broker)):
            # What waits when someone subscribes is delivered to it, or not: that is up to when the batch is made.
            world.rest()
            world.subscribe(f"new{len(world.due)}", 4, broker=broker)


@examples(3, soak=40, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=20, max_size=40))
def test_everyone_gets_everything_once(day: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory) / "realm", brokers=3)
        for name, above, broker in zip(NAMES, (-1, 3, 6), BROKERS, strict=True):
            world.subscribe(name, above, broker=broker)
        for step in day:
            play(world, step)
        world.settle()
        world.rest()
        world.publish("p0", "b1", [9])
        world.rest()
        world.judge()
        world.close()
