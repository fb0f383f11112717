"""What a topic's owner asks of its key center: sealcast topic register, and --as OWNER of grant, revoke and rotate.

The administrator decides directly, in the registry. An owner has nothing but its own keys: it asks, signed, over the
center's control topic, and the center decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sealcast.cli import talk

if TYPE_CHECKING:
    from sealcast.control.correspondence import Correspondent
    from sealcast.trust.deployment import Realm
    from sealcast.trust.realm.state import RealmState

#: How long the registry may take to show what was decided.
_SEEN_S: Final = 10.0

OwnerOption = Annotated[
    str | None,
    typer.Option("--as", metavar="OWNER", help="Ask as the topic's owner [default: act as administrator]."),
]


def register(
    name: Annotated[str, typer.Argument(help="A new name.")],
    schema: Annotated[str, typer.Option(metavar="FILE", help="The topic's attributes, as JSON.")],
    as_: talk.AsOption,
    center: Annotated[str, typer.Option(help="The key center that will manage it.")] = "center",
    partitions: Annotated[int, typer.Option(help="How many partitions its log has.")] = 1,
    access: Annotated[str, typer.Option(help="granted: those with a right; members: everyone.")] = "granted",
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAMETER=VALUE", help="A key parameter: key_bits=192; can be repeated."),
    ] = None,
) -> None:
    """Register a topic of your own with a key center. Its owner then decides who may use it.

    The request is signed by the owner and travels over the center's control topic. The parameters are listed in
    docs/trust/tokens.md (algorithm, key_bits, token_hash, key_lifetime_s, challenge_every_s, ...). The center names
    those that it refuses.
    """
    from sealcast.cli.topic import read_schema
    from sealcast.control.requests import register_topic

    here = talk.open_realm(afar=True)
    parameters = dict(talk.named_value(text, "--set", "parameter") for text in given or ())
    with asking(here, as_) as owner:
        epoch = register_topic(
            owner, name, read_schema(schema), center=center, partitions=partitions, access=access, parameters=parameters
        )
    about = seen(here, lambda state: name in state.topics).topic(name)
    document = {
        "topic": name,
        "id": about.id.hex(),
        "owner": as_,
        "center": center,
        "access": str(about.access),
        "epoch": epoch,
        "parameters": about.parameters.to_json(),
    }
    talk.answer(document, f"topic {name!r} registered with {center!r}: {as_!r} decides who may use it")


def seen(here: Realm, shows: Callable[[RealmState], bool]) -> RealmState:
    """The registry, once it shows what a key center has answered: from afar that takes a moment."""
    until = time.monotonic() + _SEEN_S
    while not shows(state := here.state()) and time.monotonic() < until:
        time.sleep(0.05)
    return state


@contextmanager
def asking(here: Realm, name: str) -> Iterator[Correspondent]:
    """An entity that asks services, by its own keys."""
    from sealcast.control.at_hand import services_at_hand
    from sealcast.control.correspondence import Correspondent

    with Correspondent(here, here.identity(name), at_hand=services_at_hand(here)) as asker:
        yield asker
