"""Budgets: how much of a service anyone may use, and how long who only makes noise has to wait.

    spend(key, now)    one request of `key`: admitted, or too soon
    bogus(key, now)    it was no honest request: the next one of this key waits, and longer each time
    good(key)          it was an honest one: the key is known from now on

A budget is a token bucket, kept as one number: the time at which the bucket will be full again. A bogus attempt adds a
strike; n strikes make a delay of base * 2^(n - 1), up to a cap; strikes fade, one after each quiet spell.
All of it is a function of the times that are passed in: no clock is read, numbers are whole, and the same calls always
give the same answers.

Memory is bounded. Room for a newcomer is made by forgetting another newcomer that owes nothing any more; when there is
none, it shares one budget with all others of its kind, the *crowd*, which has no strikes because it is nobody. Whoever
invents a new name for every attempt floods that one budget, makes nobody's strikes forgotten, and takes nothing from
the known, who are let go only for others that are known.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from sealcast.errors import Misuse

SECOND_US: Final = 1_000_000
DEFAULT_MAX_KEYS: Final = 4_096
#: How many of the longest untouched keys are looked at to make room for a new one: making room costs the same always.
_LOOKED_AT: Final = 8
_MAX_STRIKES: Final = 48


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one key may use, and what its bogus attempts cost it."""

    per_second: int = 20
    #: So many at once, after a quiet spell.
    burst: int = 40
    base_delay_us: int = SECOND_US // 8
    max_delay_us: int = 300 * SECOND_US
    #: A quiet spell this long takes one strike away.
    forgive_us: int = 60 * SECOND_US

    def __post_init__(self) -> None:
        if not 0 < self.per_second <= SECOND_US or self.burst < 1:
            raise Misuse(f"a budget is 1 to {SECOND_US} a second, and a burst of 1 at least")
        if not 0 < self.base_delay_us <= self.max_delay_us or self.forgive_us < 1:
            raise Misuse("a delay grows from a base above zero to a cap that is not below it")

    def delay_us(self, strikes: int) -> int:
        """How long one waits after that many strikes in a row."""
        if strikes <= 0:
            return 0
        return min(self.max_delay_us, self.base_delay_us << min(strikes - 1, _MAX_STRIKES))


@dataclass(frozen=True, slots=True)
class BudgetVerdict:
    """May this request go on?"""

    admitted: bool
    #: The first moment at which one of this key would be admitted; now, when this one was.
    retry_at_us: int
    #: Whether it is the first refusal since the last admission: the one that is worth an answer.
    first: bool = False


class _Account:
    __slots__ = ("blocked_until", "full_at", "refused", "strikes", "struck_at")

    def __init__(self) -> None:
        self.full_at = 0
        self.blocked_until = 0
        self.strikes = 0
        self.struck_at = 0
        self.refused = False

    def fade(self, forgive_us: int, now_us: int) -> None:
        """Strikes go one by one, for every quiet spell since the last of them."""
        spells = max(0, now_us - self.struck_at) // forgive_us
        if self.strikes and spells:
            self.strikes = max(0, self.strikes - spells)
            self.struck_at += spells * forgive_us

    def owes_nothing(self, now_us: int) -> bool:
        return self.full_at <= now_us and self.blocked_until <= now_us and self.strikes == 0


class Budgets:
    """One account per key, at most `max_keys` of them, and one for the crowd."""

    __slots__ = ("_crowd", "_interval", "_known", "_max_keys", "_newcomers", "allowance")

    def __init__(self, allowance: Allowance | None = None, *, max_keys: int = DEFAULT_MAX_KEYS) -> None:
        if max_keys < 1:
            raise Misuse("budgets remember one key at least")
        self.allowance = allowance or Allowance()
        self._interval = SECOND_US // self.allowance.per_second
        self._max_keys = max_keys
        #: Both in the order of their last use.
        self._newcomers: OrderedDict[str, _Account] = OrderedDict()
        self._known: OrderedDict[str, _Account] = OrderedDict()
        self._crowd = _Account()

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._newcomers) + len(self._known)

    def ready(self, key: str, now_us: int) -> bool:
        """Whether `spend` would admit a request of `key` now; asking costs nothing."""
        return now_us >= self._ready_at(self._account(key, now_us))

    def spend(self, key: str, now_us: int, cost: int = 1) -> BudgetVerdict:
        """One request of `key`, which costs so much: the last one that is admitted may overdraw the account. A refused
        one costs nothing but itself."""
        account = self._account(key, now_us)
        ready_at = self._ready_at(account)
        if now_us < ready_at:
            first, account.refused = not account.refused, True
            return BudgetVerdict(False, ready_at, first)
        account.full_at = max(account.full_at, now_us) + cost * self._interval
        account.refused = False
        return BudgetVerdict(True, now_us)

    def _ready_at(self, account: _Account) -> int:
        return max(account.blocked_until, account.full_at - (self.allowance.burst - 1) * self._interval)

    def bogus(self, key: str, now_us: int) -> int:
        """A strike; until when the key is refused now."""
        account = self._account(key, now_us)
        if account is self._crowd:
            return now_us
        if key in self._known:
            self._newcomers[key] = self._known.pop(key)
        account.fade(self.allowance.forgive_us, now_us)
        account.strikes = min(account.strikes + 1, _MAX_STRIKES)
        account.struck_at = max(account.struck_at, now_us)
        account.blocked_until = max(account.blocked_until, now_us + self.allowance.delay_us(account.strikes))
        return account.blocked_until

    def good(self, key: str) -> None:
        """An honest request: from now on the key is known, and no newcomer takes its place."""
        account = self._newcomers.pop(key, None)
        if account is None:
            return
        self._known[key] = account
        if len(self._known) > max(1, self._max_keys // 2):
            oldest, given_up = self._known.popitem(last=False)
            self._newcomers[oldest] = given_up

    def strikes(self, key: str, now_us: int) -> int:
        """How many strikes a key has left; none when it is not remembered."""
        account = self._known.get(key) or self._newcomers.get(key)
        if account is None:
            return 0
        account.fade(self.allowance.forgive_us, now_us)
        return account.strikes

    def _account(self, key: str, now_us: int) -> _Account:
        for accounts in (self._known, self._newcomers):
            account = accounts.get(key)
            if account is not None:
                accounts.move_to_end(key)
                return account
        if len(self) >= self._max_keys and not self._make_room(now_us):
            return self._crowd
        account = self._newcomers[key] = _Account()
        return account

    def _make_room(self, now_us: int) -> bool:
        """Forget one of the longest untouched newcomers that owe nothing; those that do go to the back of the queue."""
        for _ in range(min(_LOOKED_AT, len(self._newcomers))):
            key, account = next(iter(self._newcomers.items()))
            account.fade(self.allowance.forgive_us, now_us)
            if account.owes_nothing(now_us):
                del self._newcomers[key]
                return True
            self._newcomers.move_to_end(key)
        return False
