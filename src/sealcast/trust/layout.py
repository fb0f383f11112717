"""Where things lie in a realm's directory, and how a realm is found.

REALM/
  realm.json             format, name, id, root; its registry's URL; `at_hand`         public
  registry.sqlite        every change, in order, unless it is on a server             public
  snapshots/UID/         the newest state that a user verified, and its key to it     that user alone
  secrets/broker.key     the first broker's secrets; others in secrets/brokers/       that broker alone
  secrets/administrator.key  what the administrator signs changes with                the administrator alone
  secrets/authority/     the authority's keys, certificates and revocation lists      the administrator alone
  secrets/centers/NAME.key    a key center's secrets                                  that center alone
  secrets/discovery/NAME.key  a discovery node's keys                                 that node alone
  secrets/gateways/NAME.key   a gateway's keys                                        that gateway alone
  entities/NAME.key      an entity's private keys                                     that entity alone
  NAME.head              beside a key file: the newest version of the registry seen   its owner alone
  NAME.layers/           beside a key file: its agreement keys for layered topics     its owner alone
  NAME.receiving/        beside a broker's key file: by which it is handed topics' keys  that broker alone
  topics/TOPIC/          frames/P, pieces, ledger, cursors, groups, tables, checkpoint sealed bytes
                         equivocations/, failing-STEP.json                            signed headers; why a step fails
                         of a layered one also hops/, filters/                        bytes that its broker cannot read
  brokers/NAME/          another broker's topics/TOPIC/; every broker's revocations/, knowledge
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.model.dataclass import dataclass
from sealcast.transports.address import GatewayAddress, home_of, is_address
from sealcast.trust.storage import address

FORMAT: Final = 2
_BEFORE_CERTIFICATES: Final = 1
ENVIRONMENT: Final = "SEALCAST_REALM"
_MARK: Final = "realm.json"
#: Entries of a directory among which a realm is looked for, to name it in a hint.
_LOOKED_AT: Final = 1_000
#: Who is made with the realm.
FIRST_BROKER: Final = "broker"
FIRST_CENTER: Final = "center"
FIRST_DISCOVERY_NODES: Final = ("discovery-1", "discovery-2")


class Below:
    """A file or directory that has its place below the root of a topic, or of a realm."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, paths: TopicPaths | Layout, owner: object = None) -> Path:
        return paths.root.joinpath(*self._names)


@dataclass(frozen=True, slots=True)
class TopicPaths:
    """The directories of one topic."""

    root: Path

    frames_root = Below("frames")
    pieces = Below("pieces")
    ledger = Below("ledger")
    cursors = Below("cursors")
    #: What members of consumer groups share.
    groups = Below("groups")
    checkpoint = Below("checkpoint")
    #: What replay detection remembers of the ledger's frames: worked out again when missing.
    windows = Below("windows")
    #: Snapshots of the subscription table, by version: made from the registry, and made again when missing.
    tables = Below("tables")
    #: What a broker of a layered topic knows of filters it cannot read: its routing table, and how far it is.
    filters = Below("filters")
    #: The log that everyone below the broker posts filters to.
    filter_posts = Below("filters", "in")
    #: The log whose first n records are version n of the broker's routing table.
    filter_table = Below("filters", "table")
    #: Of a peer: what it says it did (signed), what it passed on and keeps for others, and how far it heard everything.
    peer_log = Below("peer", "log")
    relayed = Below("peer", "relayed")
    heard = Below("peer", "heard.json")

    @property
    def sent(self) -> TopicPaths:
        """What a publisher's peer says of the frames that it took out of its own log: pieces and a ledger. Its inbox,
        if it subscribes, has those of the topic's directory itself."""
        return TopicPaths(self.root / "sent")

    def frames(self, partition: int) -> Path:
        return self.frames_root / str(partition)

    def dead_letters(self, reader: str) -> Path:
        """What a reader put aside."""
        return self.root / "dead-letters" / f"{reader}.jsonl"

    @property
    def hops(self) -> TopicPaths:
        """What a broker of a layered topic hands on: pieces, ledger and cursors of their own."""
        return TopicPaths(self.root / "hops")


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one realm. A name that goes into a path was checked by the realm's rules before."""

    root: Path
    #: Entities whose key files somebody named, and where those are; all others are in their place here.
    keys: tuple[tuple[str, Path], ...] = ()

    mark = Below(_MARK)
    registry = Below("registry.sqlite")
    entities = Below("entities")
    secrets = Below("secrets")
    broker_key = Below("secrets", "broker.key")
    administrator_key = Below("secrets", "administrator.key")
    invitations = Below("secrets", "reception", "invitations.sqlite")
    #: Keys, certificates and lists of the authority.
    authority = Below("secrets", "authority")

    def broker_key_of(self, name: str) -> Path:
        """The first broker's file has its own place, since most realms have no other."""
        return self.broker_key if name == FIRST_BROKER else self.secrets / "brokers" / f"{name}.key"

    def carrier_settings(self, name: str) -> Path:
        """How this machine proves who it is to a carrier."""
        return self.secrets / "carriers" / f"{name}.conf"

    def center_key(self, name: str) -> Path:
        return self.secrets / "centers" / f"{name}.key"

    def discovery_key(self, name: str) -> Path:
        return self.secrets / "discovery" / f"{name}.key"

    def gateway_key(self, name: str) -> Path:
        return self.secrets / "gateways" / f"{name}.key"

    def broker(self, name: str) -> Path:
        """What a broker keeps for itself."""
        return self.root / "brokers" / name

    def revocations(self, broker: str) -> Path:
        """A broker's own copy of the revocation lists."""
        return self.broker(broker) / "revocations"

    def entity_key(self, name: str) -> Path:
        return dict(self.keys).get(name) or self.entities / f"{name}.key"

    def topic(self, name: str, broker: str = FIRST_BROKER) -> TopicPaths:
        """A topic at one of its brokers. The first broker's are in the realm's own directory, as most have no other."""
        above = self.root if broker == FIRST_BROKER else self.broker(broker)
        return TopicPaths(above / "topics" / name)

    def layer_keys(self, owner: Path, topic_id: bytes) -> Path:
        """The agreement keys of whoever has the key file `owner`, for one layered topic, an epoch a file."""
        return owner.with_suffix(".layers") / topic_id.hex()

    def tables(self, topic: str, broker: str = FIRST_BROKER) -> Path:
        return self.topic(topic, broker).tables


@dataclass(frozen=True, slots=True)
class RealmMark:
    """What `realm.json` says."""

    name: str
    id: bytes
    #: SHA-256 of the root's certificate: whom this realm believes.
    root: bytes
    #: Where the registry is, if not in the realm's directory; without a password.
    registry: str | None = None
    #: Whether processes of clients may use the keys of centers and brokers that are on their machine. A realm that does
    #: not say so has its services run by somebody else (`sealcast serve`).
    at_hand: bool = False
    #: Of a client's home: the gateway that serves the realm (`sealcast://HOST:PORT`).
    gateway: str | None = None

    def to_bytes(self) -> bytes:
        body: dict[str, object] = {"format": FORMAT, "name": self.name, "id": self.id.hex(), "root": self.root.hex()}
        body["at_hand"] = self.at_hand
        if self.registry is not None:
            body["registry"] = address.written(self.registry)
        if self.gateway is not None:
            body["gateway"] = self.gateway
        return json.dumps(body, indent=2).encode() + b"\n"

    def registry_address(self, layout: Layout) -> address.Address:
        return layout.registry if self.registry is None else address.effective(self.registry)


def read_mark(layout: Layout) -> RealmMark:
    try:
        body = json.loads(layout.mark.read_bytes())
        if body["format"] == _BEFORE_CERTIFICATES:
            raise Misuse(
                f"{layout.root} is a realm of format {_BEFORE_CERTIFICATES}, from before certificates and tokens; "
                f"this release knows format {FORMAT}",
                hint="make a new realm (sealcast init), enrol and subscribe there; read the old one with the release "
                "that made it",
            )
        if body["format"] != FORMAT:
            raise Misuse(
                f"{layout.root} is a realm of format {body['format']}; this release knows format {FORMAT}",
                hint="use the release that made it, or a newer one of this",
            )
        registry, at_hand, gateway = body.get("registry"), body.get("at_hand", False), body.get("gateway")
        id, root = bytes.fromhex(body["id"]), bytes.fromhex(body["root"])
        written = registry and address.written(str(registry))
        return RealmMark(str(body["name"]), id, root, written, at_hand is True, gateway and str(gateway))
    except FileNotFoundError:
        raise NotFound(
            f"{layout.root} is no realm (it has no {_MARK})", hint=f"make one: sealcast init {layout.root}"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise Corrupt(f"{layout.mark} cannot be read as a realm's mark", hint="restore the file from a copy") from None


def find(
    explicit: Path | str | None = None, environment: Mapping[str, str] = os.environ, start: Path | None = None
) -> Layout:
    """The realm that was named, else the one of SEALCAST_REALM, else the nearest one around the working directory. By
    its directory, or by the address of a gateway: then it is the home that was made when one joined there."""
    named = explicit or environment.get(ENVIRONMENT) or None
    if named is not None and is_address(named):
        return _home(GatewayAddress.parse(str(named)), environment)
    if named is not None:
        layout = Layout(Path(named).absolute())
        read_mark(layout)
        return layout
    here = (start or Path.cwd()).absolute()
    found = around(here)
    if found is not None:
        return found
    below = _below(here)
    hint = f"make one (sealcast init DIR), or name it with --realm DIR or {ENVIRONMENT}"
    raise NotFound(
        f"no realm here: neither {here} nor a directory above it has a {_MARK}",
        hint=hint if below is None else f"there is one in {below.name}: cd {shlex.quote(below.name)}, or {hint}",
    )


def _below(here: Path) -> Path | None:
    """A realm in a directory of this one, which is where one stands after `sealcast init DIR`."""
    with suppress(OSError), os.scandir(here) as entries:
        return next((Path(entry) for entry in islice(entries, _LOOKED_AT) if Path(entry, _MARK).is_file()), None)
    return None


def around(start: Path) -> Layout | None:
    """The nearest realm that the directory is in."""
    here = start.absolute()
    inside = (directory for directory in (here, *here.parents) if (directory / _MARK).is_file())
    return next(map(Layout, inside), None)


def _home(gateway: GatewayAddress, environment: Mapping[str, str]) -> Layout:
    layout = Layout(home_of(gateway, environment).absolute())
    if not layout.mark.is_file():
        raise NotFound(
            f"nobody has joined a realm through {gateway} on this machine ({layout.root} has no {_MARK})",
            hint=f"get a code from the administrator (sealcast entity invite NAME), and: sealcast join {gateway}",
        )
    served = read_mark(layout).gateway
    if served != str(gateway):
        raise Misuse(
            f"{layout.root} is the home of a realm that is served by {served}, not by {gateway}",
            hint="name the home itself: --realm DIR; or another one: SEALCAST_HOME",
        )
    return layout
