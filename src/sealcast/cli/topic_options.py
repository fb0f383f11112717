"""The options of `sealcast topic create`: what each is for, and the settings of a topic's keys that they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from sealcast.cli.times import seconds
from sealcast.errors import Misuse, ParameterRejected

if TYPE_CHECKING:
    from sealcast.trust.realm.parameters import KeyParameters

CarrierOption = Annotated[
    str | None,
    typer.Option(metavar="CARRIER", help="Keep the topic there and not in the realm's directory: sealcast carrier."),
]
PartitionsOption = Annotated[int, typer.Option(help="Publishers spread over them; each one's order is kept.")]
ProtectionOption = Annotated[
    str,
    typer.Option(
        help="How much brokers may know: endpoint (all), payload (attributes), searchable (which filters an event "
        "matches), layered (nothing they can read), attribute (no brokers: peers)."
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
KeepFramesOption = Annotated[
    str,
    typer.Option(
        metavar="SPAN|SIZE",
        help="Remove committed frames before they are this old (7d), or when there are more (10GB); both with a comma "
        "(7d,10GB). `always` keeps them, and the keys of past epochs: a recording; always,10GB keeps the newest of it.",
    ),
]
KeepPiecesOption = Annotated[
    str,
    typer.Option(
        metavar="SPAN|SIZE",
        help="Remove sealed events when they are this old (90d), or when there are more (10GB); both with a comma "
        "(90d,10GB). `always` keeps them. Readers who fall behind are told how many they missed.",
    ),
]
PastKeysOption = Annotated[
    str,
    typer.Option(
        metavar="kept|forgotten",
        help="Whether brokers forget keys of epochs whose frames are gone. Nobody who steals from a broker opens those "
        "then; but nobody seals their deliveries again after a compromise.",
    ),
]
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
SlotLabelsOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="For layered: labels that a filter may have for one attribute [default: 256]."),
]
ReaderLabelsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="For layered: labels that all filters of a reader may have [default: 4096]. Each is a guess at what "
        "others asked for.",
    ),
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
RetainOption = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN,N",
        help="For searchable: match new filters with events up to this age, and with the newest N [default: 7d,10000]. "
        "Give one or both; 0 turns it off.",
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(metavar="A|P", help="For attribute: A hides values and subscriptions from guesses [default]; P not."),
]
JointOption = Annotated[
    bool,
    typer.Option(
        "--joint",
        help="For attribute: one space for all numbers. Opening is cheaper, ranges over several take many more labels.",
    ),
]
EpochOption = Annotated[
    str | None, typer.Option(metavar="SPAN", help="For attribute: how long an epoch lasts, as --key-lifetime.")
]
ReuseHeadersOption = Annotated[
    bool,
    typer.Option(
        "--reuse-headers",
        help="For attribute: events with equal labels share a header. Much faster; everybody sees which do.",
    ),
]
SessionsOption = Annotated[
    bool,
    typer.Option(
        "--sessions", help="For attribute: sign with credentials once an epoch. Faster; links a publisher's events."
    ),
]
RoutingOption = Annotated[
    bool,
    typer.Option(
        "--routing",
        help="For attribute: peers pass events on only to those they are for. Fewer messages; parents learn tokens.",
    ),
]
SplitOption = Annotated[
    int | None,
    typer.Option(
        "--split",
        metavar="K",
        help="For attribute, with --routing: split a subscription into K labels at least, each for another parent.",
    ),
]
TagsOption = Annotated[
    str | None,
    typer.Option(
        "--tags",
        metavar="keyed|paper",
        help="For attribute: how peers test labels, by keyed hashes [default] or by the paper's pairings.",
    ),
]
FanOutOption = Annotated[int | None, typer.Option(metavar="D", help="Brokers below each of them [default: 2].")]


def retained(text: str | None) -> dict[str, int]:
    """The settings that `--retain` makes: a span of time, a number of events, or both."""
    found: dict[str, int] = {}
    for part in () if text is None else text.split(","):
        name = "retain_events" if part.strip().isdecimal() else "retain_s"
        if name in found:
            raise Misuse(f"--retain is a span of time, a number of events or both, not {text!r}", hint="write 7d,10000")
        found[name] = int(part) if name == "retain_events" else seconds(part, "--retain")
    return found


_UNITS: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def kept(what: Literal["frames", "pieces"], text: str) -> dict[str, int]:
    """The parameters that `--keep-frames` and `--keep-pieces` make: a span of time, a size, or both."""
    from sealcast.trust.realm.parameters import FOR_EVER_S, NO_LIMIT

    found = {f"{what}_kept_s": FOR_EVER_S, f"{what}_kept_bytes": NO_LIMIT}
    for part in (part.strip() for part in text.split(",")):
        size = re.fullmatch(r"(\d{1,9})([KMGT]B)", part)
        if size is not None:
            found[f"{what}_kept_bytes"] = int(size[1]) * _UNITS[size[2]]
        elif part != "always":
            found[f"{what}_kept_s"] = seconds(
                part, f"--keep-{what}", "90s, 12h or 7d, a size (10GB), both (7d,10GB) or always"
            )
    return found


#: The parameters of a topic's keys that have options of their own.
_OPTIONS: Final = {
    "key_bits": "--key-size",
    "token_hash": "--token-hash",
    "messages_per_key": "--messages-per-key",
    "past_keys": "--past-keys",
    "frames_kept_s": "--keep-frames",
    "frames_kept_bytes": "--keep-frames",
    "pieces_kept_s": "--keep-pieces",
    "pieces_kept_bytes": "--keep-pieces",
    "key_lifetime_s": "--key-lifetime",
    "token_lifetime_s": "--token-lifetime",
    "grace_s": "--grace",
    "max_skew_s": "--max-skew",
    "stale_after_s": "--stale-after",
}


def parameters(given: Mapping[str, Any]) -> KeyParameters:
    """The settings of a topic's keys, from the options of `topic create` by their names in Python."""
    from sealcast.trust.realm.parameters import KeyParameters

    spans = {"token_lifetime_s", "grace_s", "max_skew_s", "stale_after_s"}
    asked: dict[str, object] = {name: seconds(given[name.removesuffix("_s")], _OPTIONS[name]) for name in spans}
    asked |= {name: given[name] for name in ("token_hash", "messages_per_key", "past_keys")}
    epoch = given["epoch"]
    lifetime = (given["key_lifetime"], "--key-lifetime") if epoch is None else (epoch, "--epoch")
    asked |= {"key_bits": given["key_size"], "key_lifetime_s": seconds(*lifetime)}
    with as_typed():
        ends = kept("frames", given["keep_frames"]) | kept("pieces", given["keep_pieces"])
        return KeyParameters.parse({**asked, **ends})


@contextmanager
def as_typed() -> Iterator[None]:
    """Says what is wrong with a parameter in the words of the command line: by the option, not by its stored name."""
    try:
        yield
    except ParameterRejected as error:
        message, hint = (_in_options(text) for text in (error.message.removeprefix("parameter "), error.hint or ""))
        raise ParameterRejected(error.parameter, message, hint=hint or None) from None


def _in_options(text: str) -> str:
    for name, option in _OPTIONS.items():
        text = re.sub(rf"\b{name}\b", option, re.sub(rf"\b{name}=", f"{option} ", text))
    return text


def settings(given: Mapping[str, Any]) -> dict[str, tuple[str, object]]:
    """The settings of a protection that were asked for, each with its option; None is what was not given."""
    profile = given["profile"]
    return {
        "layers": ("--layers", given["layers"]),
        "group": ("--group", group_named(given["group"])),
        "padded": ("--pad", given["pad"] or None),
        "slot_labels": ("--slot-labels", given["slot_labels"]),
        "reader_labels": ("--reader-labels", given["reader_labels"]),
        "sealed_attributes": ("--seal-attributes", names(given["seal_attributes"])),
        "tag_bits": ("--tag-bits", given["tag_bits"]),
        "fresh": ("--fresh-trapdoors", given["fresh_trapdoors"] or None),
        **{setting: ("--retain", value) for setting, value in retained(given["retain"]).items()},
        "profile": ("--profile", None if profile is None else profile.upper()),
        "reuse": ("--reuse-headers", given["reuse_headers"] or None),
        "session": ("--sessions", given["sessions"] or None),
        "joint": ("--joint", given["joint"] or None),
        "routing": ("--routing", given["routing"] or None),
        "split": ("--split", given["split"]),
        "tags": ("--tags", given["tags"]),
    }


def group_named(text: str | None) -> str | None:
    """A group as people write it: modp2048 is modp-2048."""
    from sealcast.model.protection import GROUPS

    spelt = {name.replace("-", ""): name for name in GROUPS}
    return None if text is None else spelt.get(text.replace("-", "").lower(), text)


def names(text: str | None) -> tuple[str, ...] | None:
    """Names with commas between them."""
    return None if text is None else tuple(name.strip() for name in text.split(","))
