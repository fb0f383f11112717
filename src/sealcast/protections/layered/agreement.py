"""The keys of one node in one tree, out of what it agreed on with each of its neighbours (paper 001, section 4.1).

The paper lets each node share keys "with nodes r hops away" and does not say how. Here a node and an ancestor of it, up
to r hops above, agree on a secret pairwise and locally: k(descendant, ancestor) is derived from it for one tree. There
is no other way to it, no key that belongs to a topic or to a publisher, and nothing that publisher and subscriber share
when more than r hops are between them.
"""

from __future__ import annotations

from sealcast.errors import Misuse
from sealcast.primitives.groups import Exponent, Group
from sealcast.protections.layered.layers import Layers, shared_exponent
from sealcast.protections.layered.tree import Tree, TreeId
from sealcast.trust.keys.layer_keys import Agreement


def exponents_for(keys: Agreement, tree: Tree, tree_id: TreeId, group: Group) -> dict[str, Exponent]:
    """A node's keys by the other one's name. Whoever announced no key, or one that is refused, is left out."""
    domain, found = tree_id.domain(keys.topic_id), dict[str, Exponent]()
    for descendant, ancestor in tree.pairs():
        if keys.name in (descendant, ancestor):
            other = ancestor if descendant == keys.name else descendant
            pair = keys.pair(other)
            if pair is not None:
                found[other] = shared_exponent(pair, group, domain, descendant, ancestor)
    return found


def layers_for(keys: Agreement, tree: Tree, tree_id: TreeId, group: Group) -> Layers:
    """The layers of one node in one tree: what brokers, publishers and subscribers all start from."""
    if (tree.publisher, keys.epoch) != (tree_id.publisher, tree_id.epoch):
        raise Misuse(f"these are the keys of epoch {keys.epoch} and the tree of {tree.publisher!r}, not of {tree_id}")
    return Layers(group, exponents_for(keys, tree, tree_id, group))
