"""How much the infrastructure may learn of a topic: the protections, each with its settings. The one table of them.

A topic has one of these values for good. What differs between protections is code in the room of the same name
(`protections.port`); what the realm's rules must know of each is written here, as facts, so that nobody compares names.

    Endpoint        the end-point broker reads events and seals each for its group (papers 000, 004)
    Payload         brokers read attributes and match; only readers open payloads, under a key of the epoch (paper 004)
    Searchable      brokers match sealed filters against sealed labels, and read neither (paper 002)
    Layered         a tree of brokers routes what none of them can read (paper 001)
    AttributeBased  no broker at all: peers carry what only matching credentials open (paper 003)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sealcast.errors import Misuse, ParameterRejected
from sealcast.model.dataclass import dataclass

if TYPE_CHECKING:
    from sealcast.model.schema import Schema

#: The step in which lengths of padded payloads show: small beside most events, many texts long.
PAD_BYTES: Final = 256
MIN_LAYERS: Final = 2
MAX_LAYERS: Final = 16
#: Prime-order groups to encrypt in, by their names; the curve is some hundred times as fast as the others.
GROUPS: Final = ("secp256k1", "modp-2048", "modp-3072")
#: Labels of one slot of a filter: a list of so many values, or two ranges of 64-bit numbers, each of which takes at
#: most 126. And labels that one reader may have: a hundred filters of some forty labels. Every label is a guess at what
#: others asked for, so that both are as small as honest filters let them be.
DEFAULT_SLOT_LABELS: Final = 256
DEFAULT_READER_LABELS: Final = 4_096
MAX_SLOT_LABELS: Final = 4_096
MAX_READER_LABELS: Final = 65_536
#: A tag is the first bits of a keyed hash: more of them search faster and tell brokers more.
MAX_TAG_BITS: Final = 32
#: What brokers retain of a searchable topic, unless told. Each of both bounds what a new filter costs them.
DEFAULT_RETAIN_EVENTS: Final = 10_000
DEFAULT_RETAIN_S: Final = 7 * 86_400
MAX_RETAIN_EVENTS: Final = 1_000_000
MAX_RETAIN_S: Final = 10 * 365 * 86_400
#: Epochs in which one filter is registered at a time, where filters are sealed: this one, and those before from which
#: something is retained.
MAX_FILTER_EPOCHS: Final = 4
#: How events of a topic without brokers are encrypted: anonymously, or as the paper does, repaired.
PROFILES: Final = ("A", "P")
TAGS: Final = ("keyed", "paper")
#: Labels that a subscription is split into, at the most: a peer has a place for each.
MAX_SPLIT: Final = 16
#: What the registry has in a filter's place where filters are for their subscriber and the key center alone.
OWN_FILTER: Final = "(its subscriber's own)"
#: Longer filters are refused unread; what a filter may cost is `filters`' own business.
MAX_FILTER_CHARACTERS: Final = 65_536
#: 4,096 labels of 86 bytes, which is what `filters.labels` allows a filter, as base64 with room for their framing.
MAX_SEALED_FILTER_CHARACTERS: Final = 1 << 19


@dataclass(frozen=True, slots=True)
class Retention:
    """What brokers keep at hand for filters that come later: the newest batches until they hold so many events, as far
    as they are not older than so many seconds."""

    events: int
    seconds: int

    def __str__(self) -> str:
        units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
        unit, size = next(each for each in units if self.seconds % each[1] == 0)
        return f"{self.events:,} events, {self.seconds // size:,} {unit}{'s' * (self.seconds != size)}"


@dataclass(frozen=True, slots=True)
class Protection:
    """What all protections state of themselves."""

    #: Also the name of its room.
    name: ClassVar[str]
    #: Brokers see attributes. Then they evaluate filters, which stand in the registry, and judge which events a token
    #: is for. Otherwise filters are their subscribers' own business, and tokens are for every event or for none.
    brokers_read: ClassVar[bool]
    #: The topic has a tree of brokers of its own: its roots take frames in and get keys, nobody forwards frames.
    overlay: ClassVar[bool] = False
    #: There is no broker. Publishers and subscribers are peers: a publisher's frames lie in a log of its own, what a
    #: subscriber got lies in a ledger of its own, and the key center hands each subscription the keys that open it.
    peers: ClassVar[bool] = False
    #: Frames number messages, publishers' rates count events.
    messages_per_event: ClassVar[int] = 1
    #: Everyone who may publish or read holds a key of the epoch that brokers do not have. So who loses a right is cut
    #: off by a new epoch, at once.
    readers_hold_key: ClassVar[bool] = False
    #: Bytes that stand in every payload's place, at the least: what publishers seal has an envelope.
    least_payload: ClassVar[int] = 0
    #: Brokers that read see payloads, too: filters may ask about them.
    payloads_seen: ClassVar[bool] = True
    #: Filters stand in the registry as their subscribers sealed them, for one epoch. Nobody else has their text.
    filters_sealed: ClassVar[bool] = False
    #: Of a filter as the registry has it.
    max_filter_characters: ClassVar[int] = MAX_FILTER_CHARACTERS
    #: What other protections can do and this one cannot, with the reason: refused by name, never left out silently.
    lacks: ClassVar[Mapping[str, str]] = {}
    #: Settings that came later, with what topics did before: a topic that was stored without them goes on as it was.
    before: ClassVar[Mapping[str, Any]] = {}

    def __str__(self) -> str:
        return self.name

    @property
    def depth(self) -> int:
        """How many hops below publishers a subscriber should stand."""
        return 0

    @property
    def summary(self) -> str:
        """Its settings, in words; empty where there are none."""
        return ""

    @property
    def hidden(self) -> frozenset[str]:
        """Attributes that even brokers that read do not see: no filter can ask about them."""
        return frozenset()

    @property
    def tag_bits_shown(self) -> int:
        """Where filters are sealed: how many bits of a label's tag brokers see."""
        return 0

    @property
    def retention(self) -> Retention | None:
        """What brokers match with filters that come later; None where filters count for later events only."""
        return None

    @property
    def joins_numbers(self) -> bool:
        """Whether labels are for all numbers of a schema at once, which bounds how fine these may be together."""
        return False

    def hidden_of(self, schema: Schema) -> frozenset[str]:
        """Attributes of a schema that publishers show to no broker."""
        return self.hidden

    @property
    def step(self) -> int:
        """The step, in bytes, in which lengths of what publishers seal show."""
        return 1

    def to_json(self) -> dict[str, Any]:
        """Its settings."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Endpoint(Protection):
    name = "endpoint"
    brokers_read = True


@dataclass(frozen=True, slots=True)
class Payload(Protection):
    """Brokers enforce filters here, mathematics does not: whoever may read opens every payload that it gets hold of."""

    name = "payload"
    brokers_read = True
    readers_hold_key = True
    least_payload = 74
    payloads_seen = False
    lacks = {  # noqa: RUF012  (a ClassVar of the base)
        "readers": "everyone who may read holds the key of every event: no publisher can narrow who opens one",
    }

    #: Attributes that publishers seal with the payload.
    sealed_attributes: tuple[str, ...] = ()
    #: Whether sealed events have lengths in steps of `PAD_BYTES`, so that an event's own length hardly shows.
    padded: bool = False

    def __post_init__(self) -> None:
        # JSON has lists.
        object.__setattr__(self, "sealed_attributes", tuple(self.sealed_attributes))
        if not all(self.sealed_attributes):
            raise ParameterRejected("sealed_attributes", "a sealed attribute has a name")
        if not isinstance(self.padded, bool):
            raise ParameterRejected("padded", f"events are padded or not, not {self.padded!r}")

    @property
    def hidden(self) -> frozenset[str]:
        return frozenset(self.sealed_attributes)

    @property
    def step(self) -> int:
        return PAD_BYTES if self.padded else 1

    @property
    def summary(self) -> str:
        sealed = f"sealed attributes {', '.join(self.sealed_attributes)}" if self.sealed_attributes else ""
        return "; ".join(filter(None, (sealed, f"lengths in steps of {PAD_BYTES} bytes" if self.padded else "")))


@dataclass(frozen=True, slots=True)
class Searchable(Protection):
    """A broker learns which subscriptions an event matches. Together with any one user it learns everything."""

    name = "searchable"
    brokers_read = False
    readers_hold_key = True
    least_payload = 79
    payloads_seen = False
    filters_sealed = True
    max_filter_characters = MAX_SEALED_FILTER_CHARACTERS
    lacks = {  # noqa: RUF012  (a ClassVar of the base)
        "readers": "everyone who may read holds the key of every event: no publisher can narrow who opens one",
        "wider domains": "labels of filters and events are made from the domains of attributes: they would not meet",
        "templates": "its brokers cannot read, and so cannot tell which events a token would be for",
    }
    before = {"retain_events": 0, "retain_s": 0}  # noqa: RUF012  (a ClassVar of the base)

    #: Bits of a label's tag that brokers see. None of them is the most private, and the slowest.
    tag_bits: int = 16
    #: Whether sealed events have lengths in steps of `PAD_BYTES`, so that an event's own length hardly shows.
    padded: bool = False
    #: Whether every event gets trapdoors of its own. They are of no use to keep labels apart: brokers see which events
    #: share a label either way.
    fresh: bool = False
    #: What brokers match with filters that come later: the newest batches until they hold so many events, as far as
    #: those are not older than so many seconds. 0 of either turns it off.
    retain_events: int = DEFAULT_RETAIN_EVENTS
    retain_s: int = DEFAULT_RETAIN_S

    def __post_init__(self) -> None:
        if isinstance(self.tag_bits, bool) or not isinstance(self.tag_bits, int):
            raise ParameterRejected("tag_bits", f"a number of bits is a whole number, not {self.tag_bits!r}")
        if not 0 <= self.tag_bits <= MAX_TAG_BITS:
            raise ParameterRejected(
                "tag_bits",
                f"a tag has 0 to {MAX_TAG_BITS} bits, not {self.tag_bits}",
                hint="fewer bits tell brokers less and make them search longer; the default is 16",
            )
        for name in ("padded", "fresh"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterRejected(name, f"{name} is true or false, not {getattr(self, name)!r}")
        for name, most in (("retain_events", MAX_RETAIN_EVENTS), ("retain_s", MAX_RETAIN_S)):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
                raise ParameterRejected(
                    name,
                    f"{name} is a whole number from 0 to {most}, not {number!r}",
                    hint="every new filter is matched with all that is retained; 0 retains nothing",
                )

    @property
    def retention(self) -> Retention | None:
        return Retention(self.retain_events, self.retain_s) if self.retain_events and self.retain_s else None

    @property
    def tag_bits_shown(self) -> int:
        return self.tag_bits

    def hidden_of(self, schema: Schema) -> frozenset[str]:
        return frozenset(schema.by_name)

    @property
    def step(self) -> int:
        return PAD_BYTES if self.padded else 1

    @property
    def summary(self) -> str:
        lengths = f"lengths in steps of {PAD_BYTES} bytes" if self.padded else ""
        fresh = "fresh trapdoors" if self.fresh else ""
        retained = "nothing retained" if self.retention is None else f"retained: {self.retention}"
        return "; ".join(filter(None, (f"tags of {self.tag_bits} bits", lengths, fresh, retained)))


@dataclass(frozen=True, slots=True)
class Layered(Protection):
    """More layers ask more of those who would collude, `layers` brokers in a row, and cost as many keys and as long a
    way down before anyone but the publisher routes an event."""

    name = "layered"
    brokers_read = False
    overlay = True
    messages_per_event = 2
    lacks = {  # noqa: RUF012  (a ClassVar of the base)
        "readers": "its brokers do not know who reads, so that a publisher cannot narrow it",
        "replay": "its brokers cannot read past events to seal them once more",
        "wider domains": "labels of filters and events are made from the domains of attributes: they would not meet",
        "spark-write": "its publishers encrypt for every root broker at the moment they publish: use sealcast pub",
        "templates": "its brokers cannot read, and so cannot tell which events a token would be for",
    }
    before = {"slot_labels": 4_096, "reader_labels": 65_536}  # noqa: RUF012  (a ClassVar of the base)

    layers: int = MIN_LAYERS
    group: str = GROUPS[0]
    #: Whether every event gets as many labels as the schema allows, so that their number tells a root nothing.
    padded: bool = False
    #: Labels of one slot of a filter, that is, of one list or of the ranges of one attribute.
    slot_labels: int = DEFAULT_SLOT_LABELS
    #: Labels of all filters of one reader, in the tree of one publisher. What it may post follows from it.
    reader_labels: int = DEFAULT_READER_LABELS

    @property
    def depth(self) -> int:
        return self.layers

    @property
    def summary(self) -> str:
        defaults = (self.slot_labels, self.reader_labels) == (DEFAULT_SLOT_LABELS, DEFAULT_READER_LABELS)
        labels = "" if defaults else f", {self.slot_labels:,} labels a slot, {self.reader_labels:,} a reader"
        return f"{self.layers} layers in {self.group}" + ", events padded" * self.padded + labels

    def __post_init__(self) -> None:
        if isinstance(self.layers, bool) or not isinstance(self.layers, int):
            raise ParameterRejected("layers", f"a number of layers is a whole number, not {self.layers!r}")
        if not MIN_LAYERS <= self.layers <= MAX_LAYERS:
            raise ParameterRejected(
                "layers",
                f"a topic has {MIN_LAYERS} to {MAX_LAYERS} layers, not {self.layers}",
                hint="one layer would let the broker next door read; 2 is what the protection was designed with",
            )
        if not isinstance(self.padded, bool):
            raise ParameterRejected("padded", f"events are padded or not, not {self.padded!r}")
        for name, most in (("slot_labels", MAX_SLOT_LABELS), ("reader_labels", MAX_READER_LABELS)):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
                raise ParameterRejected(
                    name,
                    f"{name} is a whole number from 1 to {most}, not {number!r}",
                    hint="a reader can ask about as many guesses at once as it may have labels",
                )
        if self.group not in GROUPS:
            raise ParameterRejected(
                "group",
                f"there is no group {self.group!r} to encrypt in",
                hint=f"groups are {', '.join(GROUPS)}; {GROUPS[0]} is the fast one",
            )


@dataclass(frozen=True, slots=True)
class AttributeBased(Protection):
    """The mathematics decides who opens what: a key fits the events that carry its credentials, and no others."""

    name = "attribute"
    brokers_read = False
    peers = True
    readers_hold_key = True
    payloads_seen = False
    lacks = {  # noqa: RUF012  (a ClassVar of the base)
        "brokers": "it has none: every publisher and every subscriber is a peer, and carries events for others",
        "readers": "whoever has a key that fits opens an event: its publisher cannot narrow that by name",
        "replay": "nobody keeps past events for a subscription that comes later",
        "wider domains": "places among peers are labels, made from domains: who stood above a peer before and after "
        "would know more of its filter than one of them may",
    }

    #: `A` hides values and subscriptions from whoever guesses them; `P` is the paper's own encryption, repaired.
    profile: str = PROFILES[0]
    #: Whether events with the same labels share a header: hundreds of times as fast, and everybody sees which do.
    reuse: bool = False
    #: Whether a publisher signs with its credentials once an epoch, and then by a key of its own: faster, and whoever
    #: opens two of its events sees that they are of one publisher. Frames name their publisher in any case.
    session: bool = False
    #: Whether all numbers of the schema share one space (the paper's first form): opening an event takes fewer
    #: pairings, and a range over several of them takes many labels.
    joint: bool = False
    #: Whether peers pass an event on to those below them that it is for (the paper's multi-credential routing), rather
    #: than to all: fewer messages, and each parent learns by which token.
    routing: bool = False
    #: k_D: with routing, into how many labels a peer splits a subscription at least, each for a parent of its own, so
    #: that no parent routes by the subscription's own label. 1 splits nothing.
    split: int = 1
    #: How peers tell which events have a label: `keyed` hashes, or the paper's pairings.
    tags: str = TAGS[0]

    def __post_init__(self) -> None:
        if self.tags not in TAGS:
            raise ParameterRejected(
                "tags",
                f"tags are {' or '.join(TAGS)}, not {self.tags!r}",
                hint="keyed ones take a hash where the paper's take a pairing, and parents cannot guess labels by them",
            )
        if type(self.split) is not int or not 1 <= self.split <= MAX_SPLIT:
            raise ParameterRejected("split", f"split is 1 to {MAX_SPLIT}, not {self.split!r}")
        if self.split > 1 and not self.routing:
            raise ParameterRejected(
                "split",
                "only where peers route by tokens is there something to split: without, no parent learns a label",
                hint="give --routing, too, or leave --split out",
            )
        if self.profile not in PROFILES:
            raise ParameterRejected(
                "profile",
                f"a profile is {' or '.join(PROFILES)}, not {self.profile!r}",
                hint="A hides values and subscriptions from whoever guesses them; P is what the paper describes",
            )
        for name in ("reuse", "session", "joint", "routing"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterRejected(name, f"{name} is true or false, not {getattr(self, name)!r}")

    def hidden_of(self, schema: Schema) -> frozenset[str]:
        return frozenset(schema.by_name)

    @property
    def joins_numbers(self) -> bool:
        return self.joint

    @property
    def summary(self) -> str:
        said = {
            ", shared headers": self.reuse,
            ", sessions": self.session,
            ", one space for all numbers": self.joint,
            ", routing by tokens": self.routing,
            f", split into {self.split}": self.split > 1,
            ", the paper's tags": self.tags == "paper",
        }
        return f"profile {self.profile}" + "".join(words for words, chosen in said.items() if chosen)


#: A new protection is a class above, a line here, and a room in protections/.
PROTECTIONS: Final[Mapping[str, type[Protection]]] = {
    kind.name: kind for kind in (Endpoint, Payload, Searchable, Layered, AttributeBased)
}
DEFAULT_PROTECTION: Final = Endpoint()


def protection_of(name: str, settings: Mapping[str, Any] | None = None) -> Protection:
    """The protection of that name with these settings, its defaults for the others; Misuse for any other name, and for
    settings that are another protection's."""
    kind = PROTECTIONS.get(name)
    if kind is None:
        raise Misuse(f"protection is one of {', '.join(PROTECTIONS)}, not {name!r}")
    for setting in settings or {}:
        if name not in with_setting(setting):
            raise Misuse(f"protection {name!r} has no setting {setting!r}")
    return kind(**settings or {})


def with_setting(setting: str) -> list[str]:
    """The protections that have this setting."""
    return [kind.name for kind in PROTECTIONS.values() if setting in {field.name for field in fields(kind)}]


def to_json(protection: Protection) -> str | dict[str, Any]:
    """The protection as the registry stores it: a name, and the settings where there are any."""
    settings = protection.to_json()
    return {"name": protection.name, **settings} if settings else protection.name


def from_json(body: Any) -> Protection:
    """What `to_json` wrote; Misuse, ParameterRejected or TypeError for anything else."""
    match body:
        case str():
            return protection_of(body)
        case {"name": str(name)}:
            before = PROTECTIONS[name].before if name in PROTECTIONS else {}
            return protection_of(name, {**before, **{key: value for key, value in body.items() if key != "name"}})
        case _:
            raise TypeError(f"{body!r} is no protection")
