"""A key center's secrets: its own keys, and what the keys of the topics that it manages follow from, until it forgets.

    day tree   one secret for every day (`ratchet`)
    chain      of a topic: it begins with the secret of the day on which its first epoch with this center began. Each
               epoch's link gives that epoch's keys and the next link, and no link before

Which day and which epoch that is, the registry says. So a center that restarts, or is restored from a copy of its file,
has the same keys, and so have two that were made from one file.

An epoch that is over, and that nobody needs any more, is forgotten (`forgotten`): the tree is kept from a few days ago
on, and chains that began before from the first epoch that is needed. Whoever takes the file then gets no key of an
earlier epoch. A topic that keeps a recording keeps its whole chain.

Releases before this one derived the keys of all epochs from one master secret. Such epochs stay derivable until none of
them is needed; then the master secret is forgotten, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log import files
from sealcast.model.dataclass import dataclass
from sealcast.primitives import kdf
from sealcast.primitives.secrets import Secret
from sealcast.trust.keys.holder import HolderSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.ratchet import DAY_US, DayTree, day_of
from sealcast.trust.keys.topic_keys import TopicKeys
from sealcast.trust.realm.topics import FIRST_EPOCH, DeletedTopic, Topic
from sealcast.trust.vault import keyfile

#: Days before the present one that the tree keeps: clocks of whoever makes topics may differ by as much.
_MARGIN_DAYS: Final = 2


@dataclass(frozen=True, slots=True)
class _Link:
    """The link of a topic's chain that belongs to an epoch."""

    epoch: int
    secret: Secret

    def at(self, epoch: int) -> _Link:
        link = self.secret
        for _ in range(epoch - self.epoch):
            link = kdf.derive(link, b"next epoch")
        return _Link(epoch, link)


class CenterSecrets(HolderSecrets):
    """What a key center is trusted with: whoever has it can read its topics and let anyone in."""

    __slots__ = ("_days", "_links", "_master", "_seeds")

    KIND = "sealcast key center"
    FIELD = "master"
    CALLED = "key center"
    ELSEWHERE = "run this where the realm was made, or ask the center over its topic"

    def __init__(
        self,
        identity: Identity,
        master: Secret | None,
        days: DayTree,
        links: Mapping[bytes, _Link] | None = None,
        seeds: Mapping[bytes, Secret] | None = None,
    ) -> None:
        """`master` is what earlier releases derived everything from; `links` and `seeds` are of topics, by id, whose
        beginning was forgotten."""
        self.identity = identity
        self._master = master
        self._days, self._links, self._seeds = days, dict(links or {}), dict(seeds or {})

    # --- keys ---------------------------------------------------------------------------------------

    def topic_keys(self, topic: Topic, epoch: int | None = None) -> TopicKeys:
        """The keys of one of its topics in an epoch (the current one, unless another is named); NotFound for one that
        was forgotten."""
        self._check_own(topic)
        epoch = topic.epoch if epoch is None else epoch
        if epoch < topic.center_since:
            raise Misuse(
                f"the key of topic {topic.name!r} in epoch {epoch} was another center's: "
                f"{self.name!r} manages the topic since epoch {topic.center_since}"
            )
        source = self._source(topic, epoch)
        key = kdf.derive(source, b"topic key", topic.id, epoch.to_bytes(8, "big"))
        content = kdf.derive(source, b"content key", topic.id, epoch.to_bytes(8, "big"))
        return TopicKeys(topic.id, epoch, key, content)

    def has(self, topic: Topic, epoch: int) -> bool:
        """Whether it can still make the keys of an epoch of one of its topics."""
        try:
            self._source(topic, epoch)
        except NotFound:
            return False
        return epoch >= topic.center_since

    def gives_until(self, topic: Topic) -> int | None:
        """Until when these secrets give keys of a topic that is not needed any more: the day on which its chain began
        goes by itself, with upkeep. None where they give none now."""
        if not self.has(topic, topic.epoch):
            return None
        return (_begins(topic) + _MARGIN_DAYS + 1) * DAY_US if topic.chained_since else 0

    def master_seed(self, topic: Topic) -> Secret:
        """What the master secret of a topic is made from whose events are opened by credentials. It is one for all
        epochs of the topic that are this center's: each credential names its epoch."""
        self._check_own(topic)
        if topic.id in self._seeds:
            return self._seeds[topic.id]
        if topic.chained_since == topic.center_since:
            return kdf.derive(self._begun(topic), b"master seed", topic.id)
        return kdf.derive(self._masters(topic), b"master seed", topic.id)

    def _source(self, topic: Topic, epoch: int) -> Secret:
        """What an epoch's keys are derived from."""
        if not topic.chained_since or epoch < topic.chained_since:
            return self._masters(topic)
        return self._link(topic, epoch).secret

    def _link(self, topic: Topic, epoch: int) -> _Link:
        """From the chain's beginning, as long as its day gives it; else from the link that was kept. So what this says
        is forgotten is what nobody can make from these secrets."""
        try:
            known = _Link(topic.chained_since, kdf.derive(self._begun(topic), b"first epoch", topic.id))
        except NotFound:
            if topic.id not in self._links:
                raise
            known = self._links[topic.id]
        if epoch < known.epoch:
            raise self._forgotten(topic, f"epoch {epoch}")
        return known.at(epoch)

    def _begun(self, topic: Topic) -> Secret:
        """The secret of the day on which the topic's chain began."""
        try:
            return self._days.secret(_begins(topic))
        except NotFound:
            raise self._forgotten(topic, f"epoch {topic.chained_since}") from None

    def _masters(self, topic: Topic) -> Secret:
        if self._master is None:
            raise self._forgotten(topic, "an epoch of an earlier release")
        return self._master

    def _forgotten(self, topic: Topic, what: str) -> NotFound:
        return NotFound(
            f"key center {self.name!r} has forgotten {what} of topic {topic.name!r}",
            hint="epochs that are over are forgotten, unless the topic keeps a recording (topic alter --keep-frames "
            "always). If it is the present one, a clock was or is wrong: restore the center's file from a copy, or "
            f"move its topics to another center: sealcast compromise {self.name}",
        )

    def _check_own(self, topic: Topic) -> None:
        if topic.center != self.name:
            raise Misuse(f"topic {topic.name!r} is managed by center {topic.center!r}, not by {self.name!r}")

    # --- forgetting ---------------------------------------------------------------------------------

    def forgotten(
        self, topics: Sequence[Topic], now_us: int, seen_us: int, deleted: Collection[DeletedTopic] = ()
    ) -> CenterSecrets:
        """These secrets without what nobody needs any more of all the topics that this center manages; the same, if
        there is nothing of the kind. `topics` are all that there were at `seen_us`: the days of those that were made
        after it stay. Of those that were `deleted` nothing is kept."""
        mine = [topic for topic in topics if topic.center == self.name]
        day = max(self._days.begins, day_of(min(now_us, seen_us)) - _MARGIN_DAYS)
        firsts = {topic.id: self._first(topic, now_us) for topic in mine}
        derived = any(firsts[topic.id] < (topic.chained_since or topic.epoch + 1) for topic in mine)
        # A chain is cut once its day goes: as long as the day is there, so is the whole chain.
        past = [topic for topic in mine if topic.chained_since and _begins(topic) < day]
        over = any(max(topic.chained_since, firsts[topic.id]) > self._least(topic) for topic in past)
        ended = {each.id for each in deleted}
        gone = ended.union(topic.id for topic in topics if topic.center != self.name)
        kept = gone & self._links.keys() or ended & self._seeds.keys()
        dated = any(self._days.begins <= day_of(each.began_us) < day for each in deleted)
        if not over and not kept and not dated and (derived or self._master is None):
            return self
        links = {id: link for id, link in self._links.items() if id not in gone}
        seeds = {id: seed for id, seed in self._seeds.items() if id not in ended}
        for topic in past:
            with suppress(NotFound):  # what is lost is no worse for this
                links[topic.id] = self._link(topic, max(firsts[topic.id], topic.chained_since))
        for topic in (each for each in mine if each.protection.peers):
            with suppress(NotFound):
                seeds[topic.id] = self.master_seed(topic)
        return CenterSecrets(self.identity, self._master if derived else None, self._days.since(day), links, seeds)

    def _least(self, topic: Topic) -> int:
        """The first epoch of a topic's chain that these secrets give."""
        return next((e for e in range(topic.chained_since, topic.epoch) if self.has(topic, e)), topic.epoch)

    def _first(self, topic: Topic, now_us: int) -> int:
        """The first epoch whose keys somebody may need, of those that are left."""
        needed = range(max(topic.center_since, topic.first_needed(now_us)), topic.epoch)
        return next((epoch for epoch in needed if self.has(topic, epoch)), topic.epoch)

    # --- its file -----------------------------------------------------------------------------------

    @classmethod
    def generate(cls, name: str) -> Self:
        return cls(Identity.generate(name), None, DayTree.generate())

    @classmethod
    def load(cls, path: Path) -> Self:
        missing = NotFound(f"the {cls.CALLED}'s secrets are not here ({path} does not exist)", hint=cls.ELSEWHERE)
        body = keyfile.read(path, cls.KIND, missing)
        try:
            return cls(Identity.from_fields(body, path), *_secrets(body))
        except (KeyError, ValueError, TypeError, AttributeError, Misuse):
            raise Corrupt(f"{path} does not hold a {cls.CALLED}'s secrets", hint="restore it from a copy") from None

    def save(self, path: Path) -> None:
        keyfile.write(path, self.KIND, self._fields())

    @classmethod
    def forget(
        cls, path: Path, topics: Sequence[Topic], now_us: int, seen_us: int, deleted: Collection[DeletedTopic] = ()
    ) -> bool:
        """`forgotten`, in the center's file; whether anything was. Copies of the file, and the disk until it is written
        over, may still have what was there before."""
        found = cls.load(path)
        if found.forgotten(topics, now_us, seen_us, deleted) is found:
            return False
        with files.locked(path.with_suffix(".lock")):
            found = cls.load(path)  # somebody else may have done it meanwhile
            keyfile.replace(path, cls.KIND, found.forgotten(topics, now_us, seen_us, deleted)._fields())
        return True

    @classmethod
    def forget_topics(cls, path: Path, ids: Collection[bytes]) -> None:
        """Removes from the center's file what it keeps of topics by themselves. Their keys can still be made from the
        secret of the day on which they began, until that day is forgotten."""
        with files.locked(path.with_suffix(".lock")):
            found = cls.load(path)
            links = {id: link for id, link in found._links.items() if id not in ids}
            seeds = {id: seed for id, seed in found._seeds.items() if id not in ids}
            if len(links) + len(seeds) < len(found._links) + len(found._seeds):
                left = CenterSecrets(found.identity, found._master, found._days, links, seeds)
                keyfile.replace(path, cls.KIND, left._fields())

    def _fields(self) -> dict[str, object]:
        """For its file, and nothing else."""
        body: dict[str, object] = {
            **self.identity.fields(),
            "days": self._days.fields(),
            "links": {id.hex(): [link.epoch, link.secret.reveal().hex()] for id, link in self._links.items()},
            "seeds": {id.hex(): seed.reveal().hex() for id, seed in self._seeds.items()},
        }
        return body if self._master is None else {**body, self.FIELD: self._master.reveal().hex()}


def _begins(topic: Topic) -> int:
    """The day on which a topic's chain began."""
    return day_of(topic.epoch_starts[topic.chained_since - FIRST_EPOCH])


def _secrets(body: Mapping[str, Any]) -> tuple[Secret | None, DayTree, dict[bytes, _Link], dict[bytes, Secret]]:
    """What a center's file holds beside its identity. Files of earlier releases have the master secret alone; days
    follow from it as long as it is there, so that copies agree."""
    master = Secret(bytes.fromhex(body["master"])) if "master" in body else None
    if "days" not in body and master is not None:
        return master, DayTree({"": kdf.derive(master, b"days")}), {}, {}
    links = {bytes.fromhex(id): _Link(int(n), Secret(bytes.fromhex(raw))) for id, (n, raw) in body["links"].items()}
    seeds = {bytes.fromhex(id): Secret(bytes.fromhex(raw)) for id, raw in body["seeds"].items()}
    return master, DayTree.from_fields(body["days"]), links, seeds
