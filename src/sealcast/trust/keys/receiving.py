"""Receiving keys of brokers: how a broker is handed a topic's keys, so that it can forget them.

    private half    one file for each topic and number, beside the broker's key file and sealed like it; nobody else's
    public half     in the registry, stated by the broker itself (`AnnounceReceivingKey`)

The registry keeps for ever what a topic's center sealed to a broker. Sealed to the key in the broker's certificate, it
opens as long as that key is in its file. So on topics whose brokers forget (`KeyParameters.past_keys`) keys are sealed
to the receiving key that the broker announced last. Once it was used, the broker announces the next. It removes the
private half when it has no frames left of the epochs that came by it, and nobody needs them: then nothing that lies
anywhere opens them. The keys are hybrid (`primitives.hybrid`), since what is kept for ever has to withstand longer.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from sealcast.errors import Corrupt, Misuse, NotFound
from sealcast.log import files
from sealcast.primitives.hybrid import HybridKey
from sealcast.primitives.secrets import Secret, Unpicklable
from sealcast.trust.keys.topic_keys import received_by
from sealcast.trust.realm.changes import AnnounceReceivingKey
from sealcast.trust.realm.state import RealmState
from sealcast.trust.realm.topics import Topic
from sealcast.trust.vault import keyfile

KIND: Final = "sealcast receiving key"


class ReceivingKeys(Unpicklable):
    """One broker's own, of all topics."""

    __slots__ = ("_name", "_root")

    def __init__(self, owner: Path, name: str) -> None:
        """`owner` is the broker's key file."""
        self._root, self._name = owner.with_suffix(".receiving"), name

    def own(self, topic: Topic, number: int) -> HybridKey:
        """The private half, from its file; NotFound if it is elsewhere, or was forgotten."""
        missing = NotFound(
            f"broker {self._name!r} has no keys any more of an epoch of topic {topic.name!r}: it has forgotten what "
            "opens them",
            hint=f"the topic says so (past_keys). If it is the present epoch, {self._root.name} was lost or is on "
            f"another machine: bring it back, or run `sealcast maintain` and then `sealcast topic rotate {topic.name}`",
        )
        path = self._file(topic, number)
        body = keyfile.read(path, KIND, missing)
        try:
            if (body["broker"], body["topic"], body["number"]) != (self._name, topic.id.hex(), number):
                raise ValueError(path)
            return HybridKey(Secret(bytes.fromhex(body["private"])))
        except (KeyError, ValueError, TypeError, Misuse):
            raise Corrupt(f"{path} holds another receiving key than its name says", hint="restore it") from None

    def announcement(self, state: RealmState, topic: str) -> list[AnnounceReceivingKey]:
        """The next key, its private half in its file; nothing, as long as the last one is here and was not used."""
        about, known = state.topic(topic), state.receiving_key(topic, self._name)
        if not about.parameters.forgets:
            return []
        number = 1
        if known is not None:
            used = known.number in self._used(state, topic).values()
            if not used and self._file(about, known.number).exists():
                return []
            number = known.number + 1
        return [AnnounceReceivingKey(topic, self._name, number, self._made(about, number).public)]

    def forget(self, state: RealmState, topic: str, *, before: int) -> list[int]:
        """Removes the private halves that nothing but keys of epochs before one came by; which. The newest stays: the
        next epoch's keys come by it."""
        about, known = state.topic(topic), state.topic_state(topic).receiving_keys.get(self._name)
        needed = {number for epoch, number in self._used(state, topic).items() if epoch >= before}
        newest = 0 if known is None else known.number
        gone = [number for number in self.numbers(about) if number < newest and number not in needed]
        for number in gone:
            with suppress(FileNotFoundError):
                self._file(about, number).unlink()
        if gone:
            files.sync_directory(self._file(about, 0).parent)
        return gone

    def numbers(self, topic: Topic) -> list[int]:
        """Those whose private half is here."""
        found = self._file(topic, 0).parent.glob("*.key")
        return sorted(int(path.stem) for path in found if path.stem.isdecimal())

    def _used(self, state: RealmState, topic: str) -> dict[int, int]:
        """By epoch, the number of the key that the broker was handed its keys by."""
        handed = state.topic_state(topic).topic_keys.items()
        by = {epoch: received_by(sealed) for (epoch, broker), sealed in handed if broker == self._name}
        return {epoch: number for epoch, number in by.items() if number is not None}

    def _made(self, topic: Topic, number: int) -> HybridKey:
        """One that was made but never announced, because that was cut short, is as good as new."""
        path = self._file(topic, number)
        if not path.exists():
            private = HybridKey.generate().private.reveal().hex()
            body = {"broker": self._name, "topic": topic.id.hex(), "number": number, "private": private}
            try:
                keyfile.write(path, KIND, body)
            except Misuse:
                # Whoever was faster, in another process of the same broker, has made the one that counts.
                if not path.exists():
                    raise
        return self.own(topic, number)

    def _file(self, topic: Topic, number: int) -> Path:
        return self._root / topic.id.hex() / f"{number}.key"


def lasting_keys(state: RealmState, topic: str) -> list[str]:
    """The brokers that serve a topic and got the present epoch's keys by the key in their certificate, which they never
    forget: they had announced no other."""
    epoch = state.topic(topic).epoch
    sealed = {name: state.topic_key(topic, epoch, name) for name in state.serving(topic)}
    return [name for name, key in sealed.items() if key is not None and received_by(key) is None]
