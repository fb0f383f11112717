"""Requests that schemathesis makes from our own OpenAPI document: never a 5xx or a traceback, always a known number.

Bodies are CBOR, and JSON Schema has no byte strings: strings of the format `byte-string` are made with a mark, which
becomes bytes when they are encoded. What hypothesis makes of the schema to break it loses the mark now and then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sealcast.control.budgets import Allowance
from sealcast.gateway.limits import DEFAULT_LIMITS
from sealcast.gateway.openapi import document
from tests.gateway.world import RunningGateway, identity_pem, make_realm, running

MARK = "\x00bytes:"
#: Answers without end: their heads are read here, tests/gateway/test_following.py reads on.
ENDLESS = {"follow"}
#: Who asks: a subscriber, a broker, and somebody who shows no certificate.
CALLERS = ("alice", "broker", None)
#: Instead of names that nobody has.
NAMES = {"topic": ["quotes", "nothing"], "broker": ["broker", "alice"], "part": ["mail", "hops", "replays"]}

schemathesis.openapi.format("byte-string", st.binary(max_size=64).map(lambda raw: MARK + raw.hex()))


@schemathesis.serializer("application/cbor")
def _cbor(context: Any, value: Any) -> bytes:
    return cbor2.dumps(_bytes(value), canonical=True)


def _bytes(value: Any) -> Any:
    match value:
        case str() if value.startswith(MARK):
            try:
                return bytes.fromhex(value.removeprefix(MARK))
            except ValueError:
                return value
        case list():
            return [_bytes(each) for each in value]
        case dict():
            return {_bytes(name): _bytes(each) for name, each in value.items()}
    return value


class Fuzzed:
    """A gateway, and how anybody asks it anything."""

    def __init__(self, gateway: RunningGateway, sessions: dict[str | None, requests.Session]) -> None:
        self._gateway, self._sessions = gateway, sessions

    def ask(self, caller: str | None, case: Any, *, endless: bool) -> tuple[int, bytes]:
        asked = case.as_transport_kwargs(base_url=f"https://localhost:{self._gateway.port}")
        try:
            return self._ask_once(self._sessions[caller], asked, endless=endless)
        except requests.ConnectionError:
            # Making a request may take so long that the gateway closed the idle connection: once more, by a new one.
            self._sessions[caller].close()
            return self._ask_once(self._sessions[caller], asked, endless=endless)

    @staticmethod
    def _ask_once(session: requests.Session, asked: dict[str, Any], *, endless: bool) -> tuple[int, bytes]:
        with session.request(**asked, stream=True, timeout=60, allow_redirects=False) as answer:
            good = endless and answer.status_code == 200
            return answer.status_code, b"" if good else answer.content

    def faults(self) -> list[str]:
        return [line for line in self._gateway.log.getvalue().splitlines() if "Traceback" in line or '"fault"' in line]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    clients: Path = tmp_path_factory.mktemp("clients")
    realm = make_realm(tmp_path_factory.mktemp("fuzzed") / "market")
    # Some of what is made is no HTTP, and an address that sends such things is soon refused.
    plenty = Allowance(10_000, 1_000_000)
    patient = replace(DEFAULT_LIMITS, bogus=Allowance(1_000, 10_000, 1, 1), caller=plenty, address=plenty)
    with ExitStack() as held:
        made, sessions = held.enter_context(running(realm, clients, patient)), dict[str | None, requests.Session]()
        for caller in CALLERS:
            session = sessions[caller] = held.enter_context(requests.Session())
            session.trust_env, session.verify = False, str(made.root)
            if caller is not None:
                session.cert = str(identity_pem(realm, caller, clients))
        yield Fuzzed(made, sessions)


OPERATIONS = {
    result.ok().definition.raw["operationId"]: result.ok()
    for result in schemathesis.openapi.from_dict(json.loads(document())).get_all_operations()
}


def _fuzz(fuzzed: Fuzzed, caller: str | None, name: str, examples: int) -> int:
    """How many requests were answered, every one of them as the document says."""
    operation = OPERATIONS[name]
    known = {*map(int, operation.definition.raw["responses"]), 400, 404, 405, 413, 415}
    generation = schemathesis.GenerationMode
    answered = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        nonlocal answered
        mode = data.draw(st.sampled_from([generation.POSITIVE, generation.NEGATIVE]))
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if isinstance(case.query, dict) and "wait" in case.query:
            case.query["wait"] = "0"
        _name_known(case.path_parameters, data.draw)
        status, content = fuzzed.ask(caller, case, endless=name in ENDLESS)
        assert status in known and status < 500, (status, content[:500])
        answered += 1

    run()
    assert not fuzzed.faults()
    return answered


def _name_known(path: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    """Puts names that exist into some of the paths."""
    for parameter, values in NAMES.items():
        if isinstance(path, dict) and parameter in path and draw(st.booleans()):
            path[parameter] = draw(st.sampled_from(values))


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_fuzzed_requests_are_answered(fuzzed: Fuzzed, name: str) -> None:
    _fuzz(fuzzed, "alice", name, 4)
    _fuzz(fuzzed, None, name, 2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("caller", CALLERS, ids=str)
def test_many_fuzzed_requests_are_answered(fuzzed: Fuzzed, caller: str | None) -> None:
    """Two thousand over every operation. Of those that take no parameters, hypothesis soon has no other to make."""
    assert sum(_fuzz(fuzzed, caller, name, 150) for name in sorted(OPERATIONS)) >= 2_000
