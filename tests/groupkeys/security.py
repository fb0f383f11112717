"""When a plan is secure: the statement that the plans of every algorithm are held to."""

from __future__ import annotations

from sealcast.filters.bits import Words
from sealcast.groupkeys.interface import GrownKey, KeyPlan, holders_of


def check(plan: KeyPlan, groups: Words) -> str | None:
    """What is wrong with a plan, or None: the statement of its security."""
    for g in range(groups.shape[0]):
        wanted = {64 * w + b for w, word in enumerate(groups[g].tolist()) for b in range(64) if word >> b & 1}
        members = plan.members[plan.member_start[g] : plan.member_start[g + 1]].tolist()
        uses = plan.uses[plan.use_start[g] : plan.use_start[g + 1]].tolist()
        via = plan.via[plan.member_start[g] : plan.member_start[g + 1]].tolist()
        if set(members) != wanted or len(members) != len(wanted):
            return f"group {g}: the plan serves {len(members)} members, the group has {len(wanted)}"
        for key in uses:
            outside = plan.holders(key) - wanted
            if outside:
                return f"group {g}: key {key} is also held by slot {min(outside)}, which is no member"
        for member, use in zip(members, via, strict=True):
            if not 0 <= use < len(uses) or member not in plan.holders(uses[use]):
                return f"group {g}: slot {member} cannot open through use {use}"
    return _check_handing_out(plan)


def _check_handing_out(plan: KeyPlan) -> str | None:
    """Whatever is handed out goes to members only: of the key, or of the table."""
    for slot, key in zip(plan.handout_slot.tolist(), plan.handout_key.tolist(), strict=True):
        if slot not in plan.holders(key):
            return f"key {key} is handed to slot {slot}, which is no member"
    links = zip(plan.link_key.tolist(), plan.link_under.tolist(), plan.link_grows.tolist(), strict=True)
    for key, under, grows in links:
        outside = plan.holders(under) - plan.holders(key)
        if outside:
            return f"key {key} is handed out under key {under}, which slot {min(outside)} holds, which is no member"
        ref = plan.keys[key]
        if not isinstance(ref, GrownKey) or grows != (ref.stem == plan.keys[under]):
            return f"key {key} is said to grow out of key {under}, and does not, or the other way round"
    for slot, table in zip(plan.table_slot.tolist(), plan.table_of.tolist(), strict=True):
        if slot not in plan.tables[table]:
            return f"a part of table {table} is given to slot {slot}, which has no place in it"
    for ref in plan.keys:
        if isinstance(ref, GrownKey) and not holders_of(ref.stem) < holders_of(ref):
            return "a key grows out of one that somebody else holds"
    return None
