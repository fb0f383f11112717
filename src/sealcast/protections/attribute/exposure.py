"""Who learns what of an `attribute` topic: with its own numbers, and with what the paper's definition leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sealcast.model.protection import AttributeBased
from sealcast.protections.attribute.settings import event_space, settings_of
from sealcast.protections.attribute.watching import LEARNT, NOT_LEARNT, Watching, finds
from sealcast.protections.port import Explanation, Party
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic

#: Definition 6.1 of the paper, in full: what peers may learn of each other's credentials, and nothing beyond.
WEAK: Final = (
    "of two subscribers that have credentials for the same attribute: that the one of the first is coarser than or "
    "equal to the one of the second, or finer than or equal to it, or neither (weak subscription confidentiality)"
)


def explained(state: RealmState, topic: str) -> Explanation:
    about, live = state.topic(topic), [e.name for e in state.entities.values() if not e.revoked]
    publishers = [name for name in live if state.may_publish(topic, name)]
    readers = [name for name in live if state.may_subscribe(topic, name)]
    space, anonymous = event_space(about), settings_of(about).profile == "A"
    trees, settings = len(space.spaces), settings_of(about)
    parties = [
        _center(about),
        _publisher(len(publishers), settings),
        _subscriber(len(readers), anonymous),
        _peer(trees, anonymous, settings),
        _disk(anonymous),
    ]
    return Explanation(
        f"the key center {about.center!r}, which makes all keys. There is no broker. Peers are trusted with nothing "
        "but carrying what they cannot open: one that does not withholds events, and can do nothing worse",
        parties,
        [*_options(settings), *_left(about, space.positions, anonymous)],
        _coalitions(len(readers), settings),
    )


def _center(about: Topic) -> Party:
    return Party(
        f"the key center ({about.center})",
        [
            "every event that it gets hold of: from the topic's master secret it can make any key (escrow)",
            "every subscriber's filters: it issues the keys for them",
        ],
        ["publish in another's name: frames are signed with their publisher's own key"],
    )


def _publisher(count: int, settings: AttributeBased) -> Party:
    shared = (
        "which events of other publishers have which labels, if it gets hold of them: publishers share the routing key "
        "of the epoch, so each can compute the tag of any label. Grant the right to publish to few"
    )
    return Party(
        f"a publisher ({count} may publish)",
        [
            "its own events",
            *([shared] if settings.tags == "keyed" else []),
        ],
        [
            "open another publisher's event, unless it has a subscription that matches",
            "learn who subscribes to what, or who gets its events",
        ],
    )


def _subscriber(count: int, anonymous: bool) -> Party:
    return Party(
        f"a subscriber ({count} may subscribe)",
        [
            "the events that one of its subscriptions matches, attributes included",
            "of an event that it carries and that does not match, as much as any peer does",
            *([] if anonymous else ["every value of every event that it carries, by guessing: profile P allows that"]),
        ],
        [
            "open an event that none of its subscriptions matches: keys of two subscriptions cannot be mixed, and "
            "subscribers who pool their keys open nothing that none of them opens alone",
            "open events of an epoch in which it was given no keys",
        ],
    )


def _peer(trees: int, anonymous: bool, settings: AttributeBased) -> Party:
    guess = (
        "test a guess of a value against an event, or of a label against a connection request"
        if anonymous
        else "open an event by its tags alone"
    )
    alone = finds(Watching.PARENT, settings)
    keyed = settings.tags == "keyed"
    guessed = "the label of a token that a child gave it, by testing guesses: the paper's tags allow that"
    return Party(
        f"a peer that carries events ({trees} attribute trees)",
        [
            WEAK,
            *LEARNT[alone],
            *(["which of its children gave it the same token, and so have the same label"] * settings.routing),
            *([guessed] if settings.routing and not keyed else []),
            "publishers' names, the times, numbers and lengths of events, and how many positions each attribute has",
            *(
                []
                if anonymous
                else [
                    "every value of an event and every label of a connection request, by guessing (profile P): anybody "
                    "can test a guess, and an attribute has few values"
                ]
            ),
        ],
        [
            guess,
            *NOT_LEARNT[alone],
            "tell by when a child answers which events it opens: it opens them beside its answers, after random pauses",
            *(["learn the label of a child's token by testing guesses: tags are keyed"] * (keyed and settings.routing)),
            "forge or alter an event: subscribers verify the publisher's signature, and that of its credentials",
        ],
    )


def _disk(anonymous: bool) -> Party:
    return Party(
        "whoever reads the disk, backups or the network, without secrets/, entities/ and wallets/",
        [
            "publishers' names, times, lengths and counts, and which events are in whose inbox",
            "the registry: names, public keys, rights, and how many subscriptions each subscriber has",
            *([] if anonymous else ["every value of every event, by guessing (profile P)"]),
        ],
        [
            "read filters or payloads" if not anonymous else "read attributes, filters or payloads",
            "alter anything unnoticed: frames are signed, ledgers are chained",
        ],
    )


def _coalitions(readers: int, settings: AttributeBased) -> Sequence[Party]:
    tokens = (
        "the label of every token that the parent's children gave it: the publisher computes the token of any label"
        if settings.tags == "keyed"
        else "the label of every token that the parent's children gave it, which the parent can guess alone"
    )
    return [
        Party(
            "a peer together with one that stands two places below it",
            list(LEARNT[finds(Watching.PARENT_AND_GRANDCHILD, settings)]),
            ["open an event that neither of them opens alone"],
            "any two peers that have one between them. The paper does not mention them; definition 6.1 does not allow "
            "what they learn",
        ),
        *([_parents(settings)] if settings.routing else []),
        Party(
            "any number of subscribers",
            ["what each of them opens, together"],
            ["open an event that none of them opens alone: each subscription's keys have a factor of their own"],
            f"{readers} may subscribe",
        ),
        *(
            [Party("a publisher together with a parent", [tokens], ["open an event that neither of them opens alone"])]
            if settings.routing
            else []
        ),
        Party(
            "anybody together with the key center",
            ["everything: the key center alone is enough"],
            ["publish in another's name"],
        ),
    ]


def _parents(settings: AttributeBased) -> Party:
    """The paper's d k_D parents. A peer of ours has places on one attribute of a subscription, so that d is 1."""
    split = settings.split
    here = (
        "k_D is 1 here: a label is not split, and the one parent of each label's place knows it. A subscription has as "
        "many places as it has labels on one attribute"
        if split == 1
        else f"k_D is {split} here: a subscription has at least {split} places, each below another parent as long as "
        "there are enough. `peer run` says where two had to share one. A label of a single value, of a text's end, or "
        "of more parts than there are places is not split"
    )
    return Party(
        "all parents of one subscription's places",
        [
            "what the subscription asks for on one attribute, the one on which it has its places",
            "with fewer of them, the labels of the places below those",
        ],
        [
            *(["learn a label that was split, if one of them is missing"] if split > 1 else []),
            "learn what the subscription asks for on its other attributes: no parent gets a token of those",
            "open an event that none of them opens alone",
        ],
        here,
    )


def _options(settings: AttributeBased) -> list[str]:
    """What the topic's owner gave up for speed."""
    shared = (
        "Events of one publisher with the same labels share a header. So everybody sees which events have equal "
        "values, and how often each combination comes. Whoever knows how often values come can guess which is which."
    )
    signed = (
        "A publisher signs with its credentials once an epoch, and by a session's key after that. Whoever opens two of "
        "its events sees that one publisher made both; frames say so to everybody in any case."
    )
    routed = (
        "A peer passes an event on to those below it that it is for, by a token that each gave it. So a parent learns "
        "of each child exactly which of the events that pass are for that label. Where a subscription has several "
        "labels, or splits one (--split), their places are at different parents as long as there are some."
    )
    paper = (
        "Tags are the paper's: every peer takes a pairing for each test, and a parent that has a child's token tells "
        "its label by guessing. In return, publishers share no key by which each could tell others' labels."
    )
    chosen = {
        shared: settings.reuse,
        signed: settings.session,
        routed: settings.routing,
        paper: settings.tags == "paper",
    }
    return [words for words, given_up in chosen.items() if given_up]


def _left(about: Topic, positions: int, anonymous: bool) -> list[str]:
    given_away = (
        "Profile A hides values and subscriptions from whoever guesses them. That this is so is argued, not proved: it "
        "rests on nobody but the key center having points of one group with the logarithms of those of the other."
        if anonymous
        else "Profile P gives away the values of events: anybody who sees one can test a guess of each value with two "
        "pairings, and the number of values is small. The same opens connection requests. Use profile A unless values "
        "may be known: sealcast topic create --profile A."
    )
    return [
        given_away,
        f"Every event has {positions:,} positions, whatever its values are: neither absent values nor the length of "
        "texts show. The length of the payload does.",
        "Who loses a right is cut off by a new epoch, which begins at once. It keeps the keys of earlier epochs, and "
        "what it was sent. When a right ends by its term, that epoch begins at the next upkeep.",
        f"An epoch lasts {_span(about.parameters.key_lifetime_s)}. A peer that is away when an epoch begins asks for "
        "its keys when it is back, for this epoch and the one before.",
        "Peers judge a publisher's token and epoch by the time that it states, within the bounds of the topic's "
        "clocks, and its right by the registry of now. What was published just before a right ended may be refused by "
        "who gets it later.",
        "Whoever may subscribe may ask for a credential of any label that its right admits. So it can hold the "
        "connection requests that reach its peer against each of them. A template of its right narrows that.",
        "Which place an event has in its publisher's log is the word of whoever handed it on. Who wrote it, when, and "
        "what is inside is not.",
        "An event goes to every peer on its way as it is. Whoever watches several links can follow it.",
        "Exponentiations take a time that depends on their secrets. Timing them takes access to the peer's machine.",
        "The key center can enrol no one. Whoever runs the authority can, and can grant itself rights.",
    ]


def _span(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size:,}{unit}"
    return f"{seconds:,}s"
