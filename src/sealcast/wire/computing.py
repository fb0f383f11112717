"""`pyarrow.compute`, imported when it is first used.

A command that handles one event never uses it, and importing it takes a tenth of such a command's time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:

    class _Compute:
        def __getattr__(self, name: str) -> Any:
            import pyarrow.compute

            return getattr(pyarrow.compute, name)

    pc = _Compute()

__all__ = ["pc"]
