"""Agreement keys of a layered topic's participants: made by each for itself, announced, and forgotten.

    private half    one file for each topic and epoch, beside its owner's key file and sealed like it; nobody else's
    public half     signed by its owner, in the registry (`layer_announcements`): verified when it is stored, and again
                    by everyone who uses it, against the certificate that its owner has then

What two of them agree on is X25519 of one's private and the other's public half, through HKDF with both names, the
realm, the topic and the epoch. So a process that holds one node's file knows what that node shares with others and
nothing that two others share, and there is no secret of the topic from which it could follow. A new epoch has new keys
without any relation to the old; once the old files are gone, nobody can be made to open what was routed under them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log import files
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.primitives.x25519 import AgreementKey
from sealcast.trust.certificates.roles import Role
from sealcast.trust.keys.broker import BrokerSecrets
from sealcast.trust.keys.identity import Identity
from sealcast.trust.keys.layer_announcements import About, LayerKeyReason, LayerKeyRejected, announce, judge
from sealcast.trust.realm.changes import AnnounceLayerKey
from sealcast.trust.realm.overlays import Overlay
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import FIRST_EPOCH, Topic
from sealcast.trust.statements import Author
from sealcast.trust.vault import keyfile

if TYPE_CHECKING:
    from sealcast.trust.certificates.certificate import Trust
    from sealcast.trust.handles import OpenRealm

KIND: Final = "sealcast layer key"
_SECOND_US: Final = 1_000_000


class LayerKeyring:
    """One participant's own agreement keys."""

    def __init__(self, realm: OpenRealm, identity: Identity) -> None:
        self._realm = realm
        self._identity = identity

    @property
    def name(self) -> str:
        return self._identity.name

    @property
    def author(self) -> Author:
        """This entity as the author that announces its keys."""
        return self._identity.author

    def ensure(self, topic: str, *, publishes: bool = False) -> bool:
        """A key for the topic's current epoch, made and announced if there is none; whether that had to be done.

        `publishes` also announces a publisher, above all roots. Done before, it does nothing more.
        """
        if self._announced(state := self._realm.state(), _layered(state, topic), publishes):
            return False
        announced = partial(self.missing, topic=topic, publishes=publishes)
        self._realm.registry.transact(announced, self._identity.author)
        return True

    def missing(self, state: RealmState, topic: str, *, publishes: bool = False) -> list[AnnounceLayerKey]:
        """The announcement that `ensure` would add, its key in its file; nothing, if there is one."""
        about = _layered(state, topic)
        if self._announced(state, about, publishes):
            return []
        announcement = announce(self._identity.signer, self._about(about), self._make(state, about).public)
        return [AnnounceLayerKey(topic, about.epoch, self.name, announcement, publishes)]

    def own(self, state: RealmState, topic: str, epoch: int) -> AgreementKey:
        """The private half, from its file; NotFound if it is elsewhere, or was forgotten."""
        return self._load(state, state.topic(topic), epoch)

    def forget(self, topic: str, *, before: int) -> list[int]:
        """Removes the private halves of epochs before one: what was agreed on in them is gone for good."""
        state = self._realm.state()
        about = state.topic(topic)
        gone = [epoch for epoch in self.epochs(state, about) if epoch < min(before, about.epoch)]
        directory = self._directory(state, about)
        for epoch in gone:
            with suppress(FileNotFoundError):
                _file(directory, epoch).unlink()
        if gone:
            files.sync_directory(directory)
        return gone

    def epochs(self, state: RealmState, topic: Topic) -> list[int]:
        """Those whose private half is here."""
        return held(self._realm, state, topic, self.name)

    # --- inside -------------------------------------------------------------------------------------

    def _announced(self, state: RealmState, topic: Topic, publishes: bool) -> bool:
        found = state.topic_state(topic.name).layer_keys.get((topic.epoch, self.name))
        return found is not None and (found.publishes or not publishes)

    def _make(self, state: RealmState, topic: Topic) -> AgreementKey:
        """One that was made but never announced, because that was cut short, is as good as new."""
        path = _file(self._directory(state, topic), topic.epoch)
        if not path.exists() and state.layer_key(topic.name, topic.epoch, self.name) is None:
            try:
                keyfile.write(path, KIND, _fresh(self.name, topic))
            except Misuse:
                # Whoever was faster, in another process of the same owner, has made the one that counts.
                if not path.exists():
                    raise
        return self._load(state, topic, topic.epoch)

    def _load(self, state: RealmState, topic: Topic, epoch: int) -> AgreementKey:
        path = _file(self._directory(state, topic), epoch)
        missing = NotFound(
            f"the agreement key of {self.name!r} for topic {topic.name!r}, epoch {epoch}, is not here",
            hint=f"it is where it was made; where it is lost, a new epoch makes a new one: "
            f"sealcast topic rotate {topic.name}",
        )
        body = keyfile.read(path, KIND, missing)
        try:
            if (body["entity"], body["topic"], body["epoch"]) != (self.name, topic.id.hex(), epoch):
                raise ValueError(path)
            return AgreementKey(Secret(bytes.fromhex(body["x25519_private"])))
        except (KeyError, ValueError, TypeError, Misuse):
            raise Corrupt(f"{path} holds another agreement key than its name says", hint="restore it") from None

    def _directory(self, state: RealmState, topic: Topic) -> Path:
        return self._realm.paths.layer_keys(key_file(self._realm, state, self.name), topic.id)

    def _about(self, topic: Topic) -> About:
        return About(self._realm.id, topic.id, topic.epoch, self.name)


class Agreement(Unpicklable):
    """What one participant shares with others in one epoch: all that `protections.layered.agreement` asks for."""

    def __init__(
        self, keyring: LayerKeyring, state: RealmState, topic: Topic, epoch: int, trust: Trust, at_us: int, former: bool
    ) -> None:
        self.name = keyring.name
        self.topic_id = topic.id
        self.epoch = epoch
        #: Whose keys were not used, and why. Who announced none is not named.
        self.refused: dict[str, LayerKeyReason] = {}
        self._own = keyring.own(state, topic.name, epoch)
        self._pairs: dict[str, Secret] = {}
        self._state, self._topic, self._trust, self._at_us, self._former = state, topic, trust, at_us, former

    def pair(self, peer: str) -> Secret | None:
        """What is shared with a peer; None if it announced no key, or one that is refused."""
        if peer in self._pairs:
            return self._pairs[peer]
        try:
            public = self._public(peer)
        except LayerKeyRejected as error:
            self.refused[peer] = error.reason
            return None
        if public is None:
            return None
        names = sorted((self.name.encode(), peer.encode()))
        epoch = self.epoch.to_bytes(8, "big")
        agreed = self._own.agreed(public, b"layer pair", self._trust.realm_id, self.topic_id, epoch, *names)
        self._pairs[peer] = agreed
        return agreed

    def _public(self, peer: str) -> bytes | None:
        announcement = self._state.layer_key(self._topic.name, self.epoch, peer)
        if announcement is None:
            return None
        about, who = About(self._trust.realm_id, self.topic_id, self.epoch, peer), self._state.entity(peer)
        return judge(announcement, about, who, self._trust, self._state.revoked, self._at_us, former=self._former)


def agreement_keys(
    realm: OpenRealm,
    identity: Identity,
    state: RealmState,
    topic: str,
    epoch: int | None = None,
    *,
    former: bool = False,
) -> Agreement:
    """What an entity shares with others on a topic, in its current epoch unless another is named.

    Keys of those who were revoked, or whose certificates ended, are refused. With `former` they are not: for taking
    out of tables what came from them, which needs the keys that it came under.
    """
    about = _layered(state, topic)
    epoch = about.epoch if epoch is None else epoch
    return Agreement(LayerKeyring(realm, identity), state, about, epoch, realm.trust(state), realm.clock(), former)


def overlay_of(realm: OpenRealm, state: RealmState, topic: str, generation: int) -> Overlay:
    """The overlay as it was in a generation, at its end: whoever finishes what began in it stands where it stood."""
    ended = state.generation_ended(topic, generation)
    return state.overlay(topic) if ended is None else realm.state(ended.version - 1).overlay(topic)


def key_file(realm: OpenRealm, state: RealmState, name: str) -> Path:
    """Where a participant's own keys are, on a machine that has them."""
    is_broker = Role.BROKER in state.entity(name).roles
    return realm.paths.broker_key_of(name) if is_broker else realm.paths.entity_key(name)


def make_many(realm: OpenRealm, state: RealmState, topic: str, names: Iterable[str]) -> None:
    """Private halves for the current epoch, each in its owner's file, for much less than one by one; those that are
    there stay. They count once they are announced."""
    about = _layered(state, topic)
    places = {name: realm.paths.layer_keys(key_file(realm, state, name), about.id) for name in names}
    lacking = {_file(at, about.epoch): name for name, at in places.items() if not _file(at, about.epoch).exists()}
    # Somebody may be faster with one of them. What is missing then, is made when it is announced.
    with suppress(Misuse):
        keyfile.write_many(KIND, {path: _fresh(name, about) for path, name in lacking.items()})


def _fresh(name: str, topic: Topic) -> dict[str, object]:
    """A new key, for its file and nothing else."""
    private = AgreementKey.generate().private.reveal().hex()
    return {"entity": name, "topic": topic.id.hex(), "epoch": topic.epoch, "x25519_private": private}


def held(realm: OpenRealm, state: RealmState, topic: Topic, name: str) -> list[int]:
    """The epochs of a topic whose private halves a participant has here."""
    found = realm.paths.layer_keys(key_file(realm, state, name), topic.id).glob("*.key")
    return sorted(int(path.stem) for path in found if path.stem.isdecimal())


def own_identity(realm: OpenRealm, state: RealmState, name: str) -> Identity:
    """A participant's identity, broker or not, from its own file."""
    # Without asking the registry again: this may be part of one of its transactions.
    is_broker = Role.BROKER in state.entity(name).roles
    path = key_file(realm, state, name)
    return BrokerSecrets.load(path).identity if is_broker else Identity.load(path, name)


def spent(topic: Topic, now_us: int) -> int:
    """The first epoch whose private keys are still needed to route: what is in logs was taken in until an epoch's grace
    was over, and may be a while on its way."""
    epoch = topic.epoch
    kept_us = (topic.parameters.grace_s + topic.parameters.stale_after_s) * _SECOND_US
    while epoch > FIRST_EPOCH and now_us <= topic.epoch_starts[epoch - FIRST_EPOCH] + kept_us:
        epoch -= 1
    return epoch


def participants(state: RealmState, topic: str) -> dict[str, bool]:
    """Who takes part in a layered topic, and whether as a publisher: its brokers, subscribers, and who was a publisher
    in this epoch or the last."""
    found = state.topic_state(topic)
    publishers = {
        who for epoch in (found.topic.epoch - 1, found.topic.epoch) for who in state.publishers_of(topic, epoch)
    }
    readers = (who for who in found.places if state.may_subscribe(topic, who))
    everyone = dict.fromkeys((*found.nodes, *readers, *sorted(publishers)))
    return {name: name in publishers for name in everyone if not state.entity(name).revoked}


def _layered(state: RealmState, topic: str) -> Topic:
    about = state.topic(topic)
    if not about.protection.overlay:
        raise Misuse(f"topic {topic!r} is not layered: nobody agrees on keys for it")
    return about


def _file(directory: Path, epoch: int) -> Path:
    return directory / f"{epoch}.key"
