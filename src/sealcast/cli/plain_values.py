"""Text and flags of command lines without pydantic.

typer checks every value with pydantic, also to find that a text is a text, and importing pydantic takes a sixth of the
time of a short command. `spare_pydantic` changes typer in one place: a value that is what its parameter asks for is
taken as it is. All others, such as numbers and paths, are looked at by typer as ever. A test holds commands to this;
should typer change, it says so, and nothing else is lost.
"""

from __future__ import annotations

from typing import Any, Final

from typer._coercion import RuntimeParam, build_runtime_param
from typer.core import _TyperParameter

_PLAIN: Final = (str, bool, int, float)


class PlainValue(RuntimeParam):
    """Takes what is of the right type already. A parameter that was not given is not looked at."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        if self.parameter_info.parser is None:
            if self.annotation in _PLAIN and type(value) is self.annotation:
                return value
            if self.annotation == list[str] and all(type(each) is str for each in value):
                return list(value)
        return build_runtime_param(param.type_descriptor)._coerce_value(value, param, ctx)


def _chosen(self: _TyperParameter) -> RuntimeParam:
    """In place of typer's own: how a parameter's values are looked at."""
    if self._runtime_param is None:
        self._runtime_param = PlainValue(self.type_descriptor.parameter_info, self.type_descriptor.annotation)
    return self._runtime_param


def spare_pydantic() -> None:
    _TyperParameter.get_runtime_param = _chosen  # type: ignore[method-assign]
