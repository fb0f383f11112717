"""The registry over a gateway: its rows as they are, and transactions that were made and signed elsewhere.

A reader verifies rows itself: chain, rules and signatures, from the root that it pinned. A writer makes its transaction
on its own copy, signs it, and posts it with the version that it was made from (compare and append). The gateway repeats
everything that is asked of a transaction before it is stored: the rules, vetting, and who signed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sealcast.control.discovery import bootstrap
from sealcast.errors import Corrupt
from sealcast.gateway import access
from sealcast.gateway.asked import ApiCall, CborAnswer
from sealcast.gateway.problems import Refusal, forbidden
from sealcast.trust.heads import Head, SignedHead
from sealcast.trust.registry import Behind
from sealcast.trust.statements import signers
from sealcast.trust.storage.rows import ChangeRow

if TYPE_CHECKING:
    from sealcast.gateway.hub import Hub

#: How far a writer's clock may be off.
DRIFT_US: Final = 300 * 1_000_000
FORMAT: Final = 1


async def realm(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Who this is: what a client needs before it believes anything, all of it signed by others or pinned."""
    seen = hub.newest.seen
    founding = seen.state.founding
    if founding is None:
        raise Corrupt("this realm was never founded")

    def read() -> tuple[Head, tuple[bootstrap.NodeAddress, ...]]:
        mark = hub.realm.site.mark()
        return hub.realm.registry.head(), bootstrap.parse(mark, hub.realm.site.shown)

    head, nodes = await hub.workers.run(read)
    return CborAnswer(
        {
            "v": FORMAT,
            "id": hub.realm.id,
            "name": hub.realm.name,
            "root": founding.root,
            "authorities": list(founding.authorities),
            "nodes": [[node.name, node.topic, _newest(hub, node)] for node in nodes],
            "version": head.version,
            "head": str(SignedHead.make(hub.realm.id, head, hub.identity.author)),
            "gateway": hub.identity.name,
        }
    )


def _newest(hub: Hub, node: bootstrap.NodeAddress) -> bytes:
    """Where a node listens is written down once; its certificate may have been renewed since."""
    entity = hub.newest.seen.state.entities.get(node.name)
    return node.certificate if entity is None else entity.certificate


async def changes(hub: Hub, asked: ApiCall) -> CborAnswer:
    """The transactions after a version."""
    after, max_bytes = asked.number("after"), asked.number("max_bytes")
    await asked.wait(hub.newest.after(after))
    if hub.newest.version == after:
        return CborAnswer({"rows": [], "newest": after})
    # Rows are read as they are now, so that a caller may be ahead of what this gateway has looked at. It is told what
    # there is: an older version would be taken for a registry that was put back.
    rows, newest = await hub.workers.run(lambda: hub.realm.registry.rows(after, max_bytes))
    return CborAnswer({"rows": [list(row) for row in rows], "newest": newest})


async def transact(hub: Hub, asked: ApiCall) -> CborAnswer:
    """Adds a transaction that the caller made and signed, alone or with others."""
    access.be_realms(home=hub.home)
    body: dict[str, Any] = asked.body
    rows = [ChangeRow(*row) for row in body["rows"]]
    if asked.caller.name not in signers(rows[-1].signed):
        raise forbidden(f"{asked.caller.name!r} is none of those who signed this transaction")
    after = Head(body["after"], body["chain"])
    try:
        version = await hub.workers.run(lambda: hub.realm.registry.take_over(after, rows, drift_us=DRIFT_US))
    except Behind as error:
        raise Refusal(409, error.code, error.message, hint=error.hint, reason="behind", newest=error.newest) from None
    await hub.newest.catch_up(version)
    return CborAnswer({"version": version})
