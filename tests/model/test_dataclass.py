"""Dataclasses whose methods are written late are those of the standard library in all that can be seen of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from sealcast.model.dataclass import _Late, dataclass

Maker = Callable[..., Any]
OPTIONS = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": repr_, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
    for repr_ in (False, True)
    for kw_only in (False, True)
]


def plain(maker: Maker) -> Any:
    class Each:
        """A value."""

        KIND: ClassVar[str] = "each"
        a: int
        b: str = "b"
        c: list[int] = dataclasses.field(default_factory=list, compare=False)
        d: bytes = dataclasses.field(default=b"", repr=False)
        e: int = dataclasses.field(init=False, default=5)

    return maker(Each)


def with_methods(maker: Maker) -> Any:
    class Each:
        a: int
        b: str = "b"

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("below zero")

        def __repr__(self) -> str:
            return "hidden"

    return maker(Each)


SHAPES = (plain, with_methods)


def outcome(act: Callable[[], Any]) -> Any:
    """A result or an error, as what can be compared between two classes of the same name."""
    try:
        done = act()
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error)
    return (
        done if isinstance(done, int | str | bytes | tuple | list | dict | bool | None) else repr(done).split(" at ")[0]
    )


def others(cls: Any) -> list[Any]:
    """What becomes of attributes that are not fields."""
    one, below = cls(a=1), type("Below", (cls,), {})(a=1)
    acts: list[Callable[[], Any]] = [
        lambda: setattr(one, "z", 2),
        lambda: delattr(one, "z"),
        lambda: setattr(below, "z", 2),
        lambda: below.z,
        lambda: delattr(below, "z"),
    ]
    return [outcome(act) for act in acts]


def seen(cls: Any) -> list[Any]:
    one = cls(a=1)

    class Below(cls):  # type: ignore[misc]
        pass

    below = Below(a=1)
    heir: Any = type("Heir", (cls,), {"__annotations__": {"z": int}, "z": 9})
    acts: list[Callable[[], Any]] = [
        lambda: (one == cls(a=1), one == cls(a=2), one != cls(a=1), one == 1, below == one, one == one),
        lambda: hash(one) == hash(cls(a=1)),
        lambda: hash(cls(a=1)) == hash(cls(a=2)),
        lambda: cls.__hash__ is None,
        lambda: cls.__hash__ is object.__hash__,
        lambda: repr(one).split(" at ")[0],
        lambda: repr(below).split(" at ")[0],
        lambda: str(inspect.signature(cls)),
        lambda: str(sorted(typing.get_type_hints(cls.__init__).items(), key=str)),
        lambda: cls.__init__.__qualname__,
        lambda: cls(),
        lambda: cls(1),
        lambda: cls(a=-1),
        lambda: cls(a=1, z=2),
        lambda: setattr(one, "a", 2),
        lambda: delattr(one, "a"),
        lambda: setattr(below, "a", 2),
        lambda: dataclasses.asdict(cls(a=3)),
        lambda: dataclasses.astuple(cls(a=3)),
        lambda: dataclasses.replace(cls(a=3), a=4).a,
        lambda: copy.copy(cls(a=3)).a,
        lambda: copy.deepcopy(cls(a=3)).a,
        lambda: cls.__match_args__,
        lambda: [(f.name, f.type, f.init, f.repr, f.compare, f.kw_only) for f in dataclasses.fields(cls)],
        lambda: getattr(cls, "__slots__", "none"),
        lambda: hasattr(one, "__dict__"),
        lambda: (cls.__module__, cls.__qualname__),
        lambda: cls.__dataclass_params__.frozen,
        lambda: dataclasses.dataclass(frozen=True)(heir)(a=1, z=2).z,
        lambda: dataclasses.dataclass(frozen=False)(heir)(a=1, z=2).z,
        lambda: dataclass(frozen=True)(heir)(a=1, z=2).z,
    ]
    return [outcome(act) for act in acts]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_class_is_the_standard_librarys(shape: Callable[[Maker], type], options: dict[str, bool]) -> None:
    late, usual = shape(dataclass(**options)), shape(dataclasses.dataclass(**options))
    assert isinstance(vars(late)["__init__"], _Late), "it is not late, so this compares nothing"
    assert seen(late) == seen(usual)
    # With both, the standard library asks a class that it threw away, and raises TypeError before Python 3.12.
    like = shape(dataclasses.dataclass(**(options | {"slots": options["slots"] and not options["frozen"]})))
    assert others(late) == others(like)
    assert not isinstance(vars(late)["__init__"], _Late), "it is written once"


@pytest.mark.parametrize("first", [lambda one: hash(one), lambda one: one == one, repr, lambda one: type(one).__init__])
def test_any_method_may_be_the_first(first: Callable[[Any], Any]) -> None:
    late: Any = plain(dataclass(frozen=True, slots=True))
    one: Any = object.__new__(late)
    for name, value in {"a": 1, "b": "b", "c": [], "d": b"", "e": 5}.items():
        object.__setattr__(one, name, value)
    first(one)
    assert one == late(1) and hash(one) == hash(late(1)) and "a=1" in repr(one)


@dataclass(frozen=True, slots=True)
class Travels:
    a: int
    b: str = "b"


@dataclass(slots=True)
class Changes:
    a: int


@pytest.mark.parametrize("one", [Travels(1), Changes(1)])
def test_values_are_pickled(one: object) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(one, protocol)) == one


def test_a_class_with_ways_of_its_own_is_left_to_the_standard_library() -> None:
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    made = dataclass(frozen=True)(Own)
    assert made(1) == made(2) and hash(made(1)) == 7  # type: ignore[call-arg]

    class Base:
        a: int

    ordered = dataclass(order=True, frozen=True)(Base)
    assert ordered(1) < ordered(2)  # type: ignore[call-arg,operator]


def test_threads_may_be_first_together() -> None:
    for _ in range(50):
        late, met = plain(dataclass(frozen=True, slots=True)), threading.Barrier(4)
        with ThreadPoolExecutor(4) as threads:
            made = list(threads.map(lambda value, late=late, met=met: (met.wait(), late(value))[1], [7] * 4))
        assert made == [late(7)] * 4


def test_importing_the_realms_changes_writes_no_method() -> None:
    """This is what it is for."""
    code = (
        "import dataclasses\n"
        "from sealcast.model.dataclass import _Late\n"
        "from sealcast.trust.realm import changes\n"
        "classes = [each for each in vars(changes).values() if dataclasses.is_dataclass(each)]\n"
        "own = [each for each in classes if each.__module__ == changes.__name__]\n"
        "print(len(own), sum(isinstance(vars(each)['__init__'], _Late) for each in own))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    classes, late = map(int, done.stdout.split())
    assert late == classes > 30
