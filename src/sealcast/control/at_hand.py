"""Every service whose keys are on this machine, for entities that ask it: key centers, and brokers' desks.

In a realm that lives in one directory, and says that clients may (`realm.json`, `at_hand`), no daemon needs to run:
whoever asks also takes a turn of the service that is asked (`control.correspondence`). In any other realm no client
ever unlocks the key of a center or a broker. Broker-side code never imports this module, because it can load a key
center.
"""

from __future__ import annotations

from sealcast.control.center.rules import MoreRules, nothing_more
from sealcast.control.center.service import center_here
from sealcast.control.desk import MoreOf, desks_at_hand
from sealcast.control.discovery.advertisements import What
from sealcast.control.service import Service
from sealcast.control.serving import AtHand
from sealcast.trust.handles import OpenRealm


def services_at_hand(realm: OpenRealm, more: MoreOf | None = None, center_more: MoreRules = nothing_more) -> AtHand:
    """For a `Correspondent`. `more` are further kinds of request that a broker of that name answers, `center_more`
    those of key centers."""
    desks = desks_at_hand(realm, more)

    def open_service(what: What, name: str) -> Service | None:
        if what is not What.KEY_CENTER:
            return desks(what, name)
        made = center_here(realm, name, more=center_more) if realm.at_hand else None
        return None if made is None else made[0]

    return open_service
