"""Who learns what of a `searchable` topic, coalitions first: the broker and any one user open everything."""

from __future__ import annotations

from typing import Final

from sealcast.filters.labels import Labeller
from sealcast.protections.enveloped.envelope import lengths
from sealcast.protections.port import Explanation, Party
from sealcast.protections.searchable.keys import settings_of
from sealcast.protections.searchable.leaks import tag_leak
from sealcast.protections.witness import past_keys
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

_DETERMINISTIC: Final = (
    "Brokers compute the same value from every trapdoor of a label. So they see how often each label of an epoch "
    "comes, and which events share labels. Who knows how often values come can guess which label is which."
)


def explained(state: RealmState, topic: str) -> Explanation:
    about, live = state.topic(topic), [e.name for e in state.entities.values() if not e.revoked]
    publishers = [name for name in live if state.may_publish(topic, name)]
    readers = [name for name in live if state.may_subscribe(topic, name)]
    users, brokers = sorted({*publishers, *readers}), state.serving(topic)
    tag_bits = settings_of(about).tag_bits
    here = f"{' or '.join(brokers)} with one of {_some(users)}" if brokers and users else ""
    return Explanation(
        "nobody but the key center, as long as no broker colludes with anyone who may publish or read",
        [_coalition(here), *_users(len(publishers), len(readers), tag_bits), *_others()],
        [*_left(about, tag_bits), past_keys.left(state, topic)],
    )


def _coalition(here: str) -> Party:
    return Party(
        "a broker together with any one who may publish or read",
        [
            "the master exponent of the epoch, because the two halves add up to it, and the search secret",
            "every filter of the epoch, by testing labels; and every label of every event",
            "every event of the epoch, if that one may read",
        ],
        ["open anything of an epoch in which that one had no key"],
        here,
    )


def _users(publishers: int, readers: int, tag_bits: int) -> list[Party]:
    told, untold = _by_tags(tag_bits)
    return [
        Party(
            f"a publisher ({publishers} may publish)",
            ["its own events", "every event of the epoch that it gets hold of, if it may read as well", *told],
            [
                "open another publisher's event, if it may only publish",
                *untold,
                "publish in another's name: every frame is signed and checked",
            ],
        ),
        Party(
            f"a reader ({readers} may read)",
            [
                "the events that match one of its own filters, as the broker delivers them",
                "every event of the epoch that it gets hold of otherwise: from a disk, a backup or a broker",
                *told,
            ],
            [
                "open events of an epoch in which it had no right to read",
                "register another's filter as its own: a sealed label names its subscriber",
                *untold,
            ],
        ),
    ]


def _others() -> list[Party]:
    return [
        Party(
            "a broker",
            [
                "which registered filters an event matches, and so who gets it",
                "which events share labels, and how often each label comes",
                "the tag of every label, as far as it goes",
                "how many labels an event has; how many alternatives, slots and labels a filter has",
                "publishers' names, times, and the lengths of what they sealed",
            ],
            [
                "read an attribute, a payload or a filter: it has neither the content key nor the search secret",
                "test a guess of a label: labels are hashed under a secret that brokers do not have",
                "forge or alter an event: subscribers verify the publisher's signature themselves",
            ],
        ),
        Party(
            "whoever reads the disk, backups or the network, without secrets/, entities/ and wallets/",
            [
                "publishers' names, times, lengths, counts, and which subscriber gets which event (by number)",
                "the registry: names, public keys, rights, and sealed filters with their tags",
            ],
            [
                "read attributes, payloads or filters",
                "alter anything unnoticed: frames are signed, the ledger is chained",
            ],
        ),
        Party(
            "the key center",
            ["every event and every filter that it gets hold of: it makes all keys"],
            ["publish in another's name"],
        ),
    ]


def _left(about: Topic, tag_bits: int) -> list[str]:
    return [
        _DETERMINISTIC,
        f"{tag_leak(tag_bits).summary} Fewer bits (--tag-bits) tell less, and brokers search longer.",
        f"Numbers of labels show. An event of this schema has up to {Labeller(about.schema).most():,}: how many "
        "depends on its texts and on which attributes are absent.",
        "A publisher may send trapdoors that are not its event's. Then the event reaches readers who did not ask "
        "for it. It is signed, so that they know whose it is.",
        "Brokers enforce filters here, mathematics does not. Whoever may read the topic opens every event of the "
        "epoch that it gets hold of.",
        "Who loses a right is cut off by a new epoch, at once, and brokers drop their half of its key. It keeps "
        "the keys of earlier epochs. When a right ends by its term, that epoch begins at the next upkeep.",
        *_retained(about),
        lengths(about.protection.step),
        "The disk allows traffic analysis: it shows times and who gets what.",
    ]


def _retained(about: Topic) -> list[str]:
    """What filters do that come late, or too late."""
    retention = about.protection.retention
    if retention is None:
        return [
            "A sealed filter is of one epoch, and counts from the batch after it was registered. A reader that is away "
            "when an epoch begins misses what brokers handle until it, or who has its keys, registers again.",
        ]
    return [
        f"Brokers match a new filter with what they retain ({retention}), so that they learn which of those events it "
        "matches, too. A reader that is away when an epoch begins gets what is retained when it registers again.",
        "For that a filter is registered in earlier epochs as well, sealed with their keys. A broker together with any "
        "one user of such an epoch opens it, also with one who has left since.",
    ]


def _by_tags(bits: int) -> tuple[list[str], list[str]]:
    """What someone with the search secret and without a broker learns of labels that others sealed, and cannot."""
    if not bits:
        return [], ["open others' filters or labels, unless it colludes with a broker"]
    share = f"one label in {1 << bits:,}"
    return [
        f"what a label of others is, by its tag, where it gets hold of the registry or a log: {share} has the same tag"
    ], []


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
