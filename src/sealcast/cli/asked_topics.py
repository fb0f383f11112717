"""Topics that a command is asked about: named one after the other, or by `--topic`, or all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sealcast.trust.realm.state import RealmState

Topics = Annotated[list[str] | None, typer.Argument(metavar="TOPIC", help="[default: all]")]
AlsoTopics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="The same as naming it; can be repeated.")
]


def asked(state: RealmState, topics: Iterable[str] | None, also: Iterable[str] | None) -> list[str]:
    """The topics that were named, each once; all of the realm if none was. NotFound for one that is not there."""
    named = dict.fromkeys([*(topics or ()), *(also or ())])
    return [state.topic(name).name for name in named] or list(state.topics)
