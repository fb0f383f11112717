"""What peers conclude about each other's labels from the events that they see passed on, and how `explain` says it.

`sealcast lab run tariq/attacks` mounts these attacks on simulated peers; a test holds what is said here to what it
measures.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from sealcast.model.protection import AttributeBased


class Watching(Enum):
    """Peers who watch events pass, and so conclude what another one's label is."""

    PARENT = auto()
    PARENT_AND_GRANDCHILD = auto()
    #: Some of the parents of one subscription's places, and all of them.
    SOME_PARENTS = auto()
    ALL_PARENTS = auto()


class Finds(Enum):
    """What they find in the end."""

    NOTHING = auto()
    #: The label of the place in between.
    BETWEEN = auto()
    #: The label of the place below, which is a part of the subscription's own, and that label itself.
    PART = auto()
    LABEL = auto()


def finds(watching: Watching, settings: AttributeBased) -> Finds:
    """What these learn of a label, on one attribute, from the events that they know and see passed on."""
    if not settings.routing:
        # Everything goes to every child, so that a parent's links say nothing. What a child passes on does.
        return Finds.BETWEEN if watching is Watching.PARENT_AND_GRANDCHILD else Finds.NOTHING
    whole = settings.split == 1 or watching is Watching.ALL_PARENTS
    return Finds.LABEL if whole else Finds.PART


#: In words, for who explains it.
LEARNT: Final[dict[Finds, tuple[str, ...]]] = {
    Finds.NOTHING: (),
    Finds.BETWEEN: (
        "over time, the label of the peer between them: it passes on what it wants, the one above knows what it was "
        "sent, and the one below what it passes on",
    ),
    Finds.PART: (
        "which of the events that pass are for a place below it, and so over time, from the events that it opens "
        "itself, the label of that place (history). It is a part of the label that its subscriber asked for",
    ),
    Finds.LABEL: (
        "which of the events that pass are for a place below it, and so over time, from the events that it opens "
        "itself, the label of that place (history)",
    ),
}
NOT_LEARNT: Final[dict[Finds, tuple[str, ...]]] = {
    Finds.NOTHING: ("learn from events which of them its children want: it sends everything to all of them",),
    Finds.BETWEEN: (),
    Finds.PART: ("learn a label that was split: other parents have its other parts",),
    Finds.LABEL: (),
}
