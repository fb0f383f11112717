"""The options of `sealcast topic create`: what each is for, and the settings of a topic's keys that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from sealcast.cli.times import seconds

if TYPE_CHECKING:
    from sealcast.trust.realm.parameters import KeyParameters

PartitionsOption = Annotated[int, typer.Option(help="Publishers spread over them; each one's order is kept.")]
ProtectionOption = Annotated[
    str,
    typer.Option(
        help="How much brokers may know: endpoint (all), payload (attributes), searchable (which filters an event "
        "matches), layered (nothing they can read)."
    ),
]
AccessOption = Annotated[
    str,
    typer.Option(help="granted: only who was granted a right; members: everyone enrolled may publish and subscribe."),
]
CenterOption = Annotated[str, typer.Option(help="The key center that makes its keys and signs its tokens.")]
OwnerOption = Annotated[str, typer.Option(metavar="ENTITY", help="Who else than the administrator decides about it.")]
KeySizeOption = Annotated[str, typer.Option(metavar="BITS", help="The length of its AES keys: 128, 192 or 256.")]
TokenHashOption = Annotated[str, typer.Option(help="The hash that signs its tokens: sha-256, sha-384, sha-512.")]
KeyLifetimeOption = Annotated[str, typer.Option(metavar="SPAN", help="Replace a key after this time.")]
MessagesPerKeyOption = Annotated[str, typer.Option(metavar="N", help="Replace a key after N messages.")]
TokenLifetimeOption = Annotated[str, typer.Option(metavar="SPAN", help="The longest life of a token.")]
GraceOption = Annotated[str, typer.Option(metavar="SPAN", help="How long the previous epoch's frames count.")]
MaxSkewOption = Annotated[str, typer.Option(metavar="SPAN", help="How far clocks may differ.")]
StaleAfterOption = Annotated[str, typer.Option(metavar="SPAN", help="Older messages are refused.")]
GroupKeysOption = Annotated[
    str,
    typer.Option(
        metavar="ALGORITHM",
        help="How groups of subscribers get their keys: mosaic, naive, simple, build-up, clustered, "
        "clustered-popular or key-tree (`sealcast plan keys` says which suits a workload).",
    ),
]
LayersOption = Annotated[
    int | None,
    typer.Option(metavar="R", help="For layered: how many brokers in a row must collude to read, 2 to 16."),
]
GroupOption = Annotated[str | None, typer.Option(help="For layered: secp256k1 (the fast one), modp-2048 or modp-3072.")]
NodesOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="For layered: how many brokers to make [default: enough for its layers]."),
]
PadOption = Annotated[
    bool,
    typer.Option(
        "--pad",
        help="For layered: put equally many labels on every event. For payload and searchable: hide lengths in steps.",
    ),
]
SealAttributesOption = Annotated[
    str | None, typer.Option(metavar="NAMES", help="For payload: seal these attributes, too (a,b).")
]
TagBitsOption = Annotated[
    int | None,
    typer.Option(
        metavar="B",
        help="For searchable: bits of a label's tag that brokers see, 0 to 32 [default: 16]. Fewer bits tell them less "
        "and make them search longer.",
    ),
]
FreshTrapdoorsOption = Annotated[
    bool, typer.Option("--fresh-trapdoors", help="For searchable: make new trapdoors for every event.")
]
FanOutOption = Annotated[int | None, typer.Option(metavar="D", help="Brokers below each of them [default: 2].")]


def parameters(given: Mapping[str, str], spans: Mapping[str, tuple[str, str]]) -> KeyParameters:
    """The settings of a topic's keys. Each span of time comes with the option that it was given by."""
    from sealcast.trust.realm.parameters import KeyParameters

    return KeyParameters.parse({**given, **{name: seconds(*span) for name, span in spans.items()}})
