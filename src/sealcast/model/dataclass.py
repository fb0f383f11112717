"""`@dataclass`, as of the standard library, whose methods are written when they are called first.

The standard library writes and compiles an `__init__`, `__repr__`, `__eq__`, `__hash__`, `__setattr__` and
`__delattr__` for every class while its module is imported. A short command imports a hundred and fifty such classes and
makes values of a third of them: a quarter of its time went into methods that nobody called. Here a class gets its
fields and slots at once, and each method with its first call. From then on it is the class that
`dataclasses.dataclass` makes.

What needs more than that (`order`, a base that has fields, methods of its own in place of those) is left to the
standard library whole.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """With the options of `dataclasses.dataclass`."""
        return _made(cls, options) if cls is not None else lambda each: _made(each, options)


#: Classes that define one of these are compared, hashed or changed in a way of their own.
_OWN_WAYS: Final = ("__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__")
#: Options that ask for methods, and whether a class has these unless it says otherwise.
_METHODS: Final = {"init": True, "repr": True, "eq": True, "frozen": False}
_UNDERSTOOD: Final = {*_METHODS, "slots", "kw_only"}


def _made(cls: type, options: dict[str, bool]) -> type:
    if (
        not options.keys() <= _UNDERSTOOD
        or any(name in vars(cls) for name in _OWN_WAYS)
        or any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
    ):
        return dataclasses.dataclass(**options)(cls)
    frozen, eq, slots = options.get("frozen", False), options.get("eq", True), options.get("slots", False)
    written = [f"__{name}__" for name in ("init", "repr", "eq") if options.get(name, True)]
    written = [name for name in written if name not in vars(cls)]
    # Without a docstring, the standard library would make one of the signature, which is not there yet.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclasses.dataclass(**(options | dict.fromkeys(_METHODS, False)))(cls)
    for option, usual in _METHODS.items():
        setattr(made.__dataclass_params__, option, options.get(option, usual))
    if eq and frozen:
        written.append("__hash__")
    elif eq:
        made.__hash__ = None
    for name in written:
        setattr(made, name, _Late(made, name, eq=eq, frozen=frozen, slots=slots))
    if frozen:
        _freeze(made, slots=slots)
    return made  # type: ignore[no-any-return]


class _Made:
    """The default of a field whose value a function makes, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE: Final = _Made()


class _Late:
    """Stands for a method until it is looked up; then it is written."""

    def __init__(self, cls: type, name: str, **options: bool) -> None:
        self._cls, self._name, self._options = cls, name, options

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self._name == "__init__":
            written = _init(self._cls, slots=self._options["slots"], frozen=self._options["frozen"])
        else:
            written = vars(_twin(self._cls, self._options))[self._name]
        # Another thread may have been here: both wrote the same.
        setattr(self._cls, self._name, written)
        return written.__get__(instance, owner)


def _init(cls: Any, *, slots: bool, frozen: bool) -> Any:
    """`__init__` alone, which all classes need that are used at all, for a third of the price of a twin."""
    named: dict[str, Any] = {"_set": object.__setattr__, "_MADE": _MADE}
    plain, by_keyword, body = list[str](), list[str](), list[str]()
    for field in dataclasses.fields(cls):
        name, default, value = field.name, "", field.name
        if field.default_factory is not dataclasses.MISSING:
            named[f"_made_{name}"], default = field.default_factory, "=_MADE"
            value = f"_made_{name}() if {name} is _MADE else {name}" if field.init else f"_made_{name}()"
        elif field.default is not dataclasses.MISSING:
            named[f"_default_{name}"] = field.default
            default, value = f"=_default_{name}", name if field.init else f"_default_{name}"
        if field.init:
            (by_keyword if field.kw_only else plain).append(name + default)
        elif not default or (default != "=_MADE" and not slots):
            continue  # it is set by `__post_init__`, or the class has it
        # Plain assignment takes half the time, and is what a frozen class refuses.
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    takes = ", ".join(["self", *plain, *(["*"] if by_keyword else []), *by_keyword])
    lines = "\n  ".join(body or ["pass"])
    # As in the standard library, names that the code needs are those of a function around it, not of the module.
    code = f"def around({', '.join(named)}):\n def __init__({takes}):\n  {lines}\n return __init__"
    space: dict[str, Any] = {}
    exec(code, vars(sys.modules[cls.__module__]), space)  # noqa: S102 of names of fields, which are identifiers
    written = space["around"](**named)
    written.__qualname__ = f"{cls.__qualname__}.__init__"
    written.__annotations__ = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    written.__annotations__["return"] = None
    return written


def _twin(cls: Any, options: dict[str, bool]) -> type:
    """A class with the same fields, made by the standard library. Its methods fit every class with these fields."""
    fields = dataclasses.fields(cls)
    body: dict[str, Any] = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    body |= {"__annotations__": {field.name: field.type for field in fields}}
    body |= {field.name: field for field in fields}
    return dataclasses.dataclass(init=False, **options)(type(cls.__name__, (), body))


def _freeze(cls: Any, *, slots: bool) -> None:
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def refuse_to(verb: str, self: object, name: str) -> None:
        # A subclass may have attributes of its own, which are not these fields.
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {verb} field {name!r}")

    def assign(self: object, name: str, value: object) -> None:
        refuse_to("assign to", self, name)
        super(cls, self).__setattr__(name, value)

    def delete(self: object, name: str) -> None:
        refuse_to("delete", self, name)
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = assign, delete
    if slots:
        cls.__getstate__, cls.__setstate__ = _state, _restore


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    # The class is frozen, and unpickling is not assigning.
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
