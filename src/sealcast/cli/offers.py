"""sealcast topic find and topic advertise: what can be found by whom, through the realm's discovery nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sealcast.cli import talk
from sealcast.cli.times import moment, seconds
from sealcast.errors import Misuse, NotFound

if TYPE_CHECKING:
    from sealcast.control.discovery.client import FoundOffer
    from sealcast.trust.deployment import Realm
    from sealcast.trust.keys.identity import Identity
    from sealcast.trust.realm.state import RealmState
    from sealcast.trust.realm.topics import TopicState


def in_registry(state: RealmState, text: str) -> list[TopicState]:
    """Topics of the registry that match, for who has the registry; nothing is asked of any node."""
    from sealcast.control.discovery.advertisements import Advertisement, What
    from sealcast.control.discovery.queries import Matcher

    matcher = Matcher.parse(text)

    def offered(found: TopicState) -> Advertisement:
        return Advertisement(found.topic.id, What.TOPIC, found.topic.name, 0, 0, 0, schema=found.topic.schema)

    return [found for found in state.topics.values() if matcher.matches(offered(found))]


def find(here: Realm, text: str, entity: str, what: str) -> None:
    """What `entity` may find, from every node, verified."""
    from sealcast.control.discovery.advertisements import What
    from sealcast.control.discovery.embedded import RealmDiscovery, advertise_new
    from sealcast.control.discovery.queries import Matcher

    if what not in (*What, "any"):
        raise Misuse(f"--what takes one of {', '.join(What)}, any; not {what!r}")
    with talk.about_filter(text):
        Matcher.parse(text)
    advertise_new(here, lambda owner: at_hand(here, owner))
    with RealmDiscovery(here, holder(here, entity)) as discovery:
        found = discovery.find(text, None if what == "any" else What(what))
    rows = [
        (f.about.path, f.about.what, f.owner, _tags(f), _attributes(f), moment(f.about.expires_us), ", ".join(f.nodes))
        for f in found
    ]
    columns = ["path", "what", "owner", "tags", "attributes", "until", "nodes"]
    document = {"as": entity, "query": text, "topics": [_describe(each) for each in found]}
    talk.answer_table(document, columns, rows, f"nothing that {entity!r} may find matches {text!r}")


def advertise(
    here: Realm, topic: str, entity: str, tags: list[str], restrict: str | None, live: str
) -> dict[str, object]:
    """Have every node keep it; what was done, for `--json`."""
    from sealcast.control.discovery.embedded import advertise_topic, owner_of
    from sealcast.control.discovery.restrictions import Restrictions

    about = here.state().topic(topic)
    if owner_of(about) != entity:
        raise Misuse(
            f"topic {topic!r} is advertised by its owner, {owner_of(about)!r}", hint=f"add --as {owner_of(about)}"
        )
    restrictions = None if restrict is None else Restrictions.parse(restrict)
    named = dict(talk.named_value(tag, "--tag", "tag") for tag in tags)
    lifetime_us, owner = seconds(live, "--live") * 1_000_000, holder(here, entity)
    spread = advertise_topic(here, about, owner, tags=named, restrictions=restrictions, lifetime_us=lifetime_us)
    if spread is None:
        raise Misuse("this realm has no discovery nodes")
    failed = {node: error.message for node, error in spread.failed.items()}
    return {"topic": topic, "owner": entity, "kept_by": list(spread.done), "failed": failed}


def withdraw(here: Realm, topic: str, entity: str) -> dict[str, object]:
    """The end of an advertisement, told to every node."""
    from sealcast.control.discovery.embedded import RealmDiscovery

    about = here.state().topic(topic)
    with RealmDiscovery(here, holder(here, entity)) as discovery:
        mine = next((f for f in discovery.find("*") if f.about.id == about.id and f.owner == entity), None)
        if mine is None:
            raise NotFound(
                f"{entity!r} does not advertise {topic!r}", hint=f"see: sealcast topic find '*' --as {entity}"
            )
        spread = discovery.withdraw(mine.about)
    return {"topic": topic, "owner": entity, "withdrawn_by": list(spread.done)}


def holder(here: Realm, name: str) -> Identity:
    """The keys of whoever has this name, or why they are not here."""
    return at_hand(here, name) or here.identity(name)


def at_hand(here: Realm, name: str) -> Identity | None:
    """The keys of whoever has this name, from the file that its role has; None when it is not here."""
    paths = here.paths
    here.state().entity(name)
    if paths.entity_key(name).exists():
        return here.identity(name)
    if paths.center_key(name).exists():
        return here.center(name).identity
    if paths.broker_key_of(name).exists():
        return here.broker(name).identity
    return here.discovery_node(name) if paths.discovery_key(name).exists() else None


def _describe(found: FoundOffer) -> dict[str, object]:
    about = found.about
    return {
        "topic": about.path,
        "what": str(about.what),
        "id": about.id.hex(),
        "owner": found.owner,
        "tags": dict(about.tags),
        "schema": None if about.schema is None else about.schema.to_json(),
        "control_topic": None if about.control_topic is None else about.control_topic.hex(),
        "restrictions": str(about.restrictions),
        "issued": moment(about.issued_us),
        "expires": moment(about.expires_us),
        "nodes": list(found.nodes),
    }


def _tags(found: FoundOffer) -> str:
    return ", ".join(f"{tag}={value}" for tag, value in found.about.tags.items())


def _attributes(found: FoundOffer) -> str:
    schema = found.about.schema
    return "" if schema is None else ", ".join(f"{a.name} {a.type}" for a in schema.attributes)
