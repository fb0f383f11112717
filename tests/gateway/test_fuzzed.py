"""Requests that schemathesis makes from our own OpenAPI document: never a 5xx or a traceback, always a known number.

Bodies are CBOR, and JSON Schema has no byte strings: strings of the format `byte-string` are made with a mark, which
becomes bytes when they are encoded. What hypothesis makes of the schema to break it loses the mark now and then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
#: Answers without end: tests/gateway/test_following.py reads one.
ENDLESS = {"follow"}
#: Ours to give: an honest gateway that is not overloaded gives no other 5xx, and here it has nothing else to do.
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


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, requests.Session]]:
    clients: Path = tmp_path_factory.mktemp("clients")
    realm = make_realm(tmp_path_factory.mktemp("fuzzed") / "market")
    # Some of what is made is no HTTP, and an address that sends such things is soon refused.
    patient = replace(DEFAULT_LIMITS, bogus=Allowance(1_000, 10_000, 1, 1), caller=Allowance(10_000, 1_000_000))
    with running(realm, clients, patient) as made, requests.Session() as session:
        session.trust_env = False
        session.verify, session.cert = str(made.root), str(identity_pem(realm, "alice", clients))
        yield made, session


OPERATIONS = {
    result.ok().definition.raw["operationId"]: result.ok()
    for result in schemathesis.openapi.from_dict(json.loads(document())).get_all_operations()
}


def _fuzz(fuzzed: tuple[RunningGateway, requests.Session], name: str, examples: int) -> None:
    made, session = fuzzed
    operation = OPERATIONS[name]
    known = {*map(int, operation.definition.raw["responses"]), 400, 404, 405, 413, 415}
    generation = schemathesis.GenerationMode

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
        mode = data.draw(st.sampled_from([generation.POSITIVE, generation.NEGATIVE]))
        case = data.draw(operation.as_strategy(generation_mode=mode))
        if isinstance(case.query, dict) and "wait" in case.query:
            case.query["wait"] = "0"
        for parameter, values in NAMES.items():
            if (
                isinstance(case.path_parameters, dict)
                and parameter in case.path_parameters
                and data.draw(st.booleans())
            ):
                case.path_parameters[parameter] = data.draw(st.sampled_from(values))
        answer = case.call(
            base_url=f"https://localhost:{made.port}",
            session=session,
            verify=session.verify,
            cert=session.cert,
            timeout=60,
        )
        assert answer.status_code in known and answer.status_code < 500, (answer.status_code, answer.content[:500])

    run()
    text = made.log.getvalue()
    assert "Traceback" not in text and '"event": "fault"' not in text, [t for t in text.splitlines() if "fault" in t][
        -1
    ]


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - ENDLESS))
def test_fuzzed_requests_are_answered(fuzzed: tuple[RunningGateway, requests.Session], name: str) -> None:
    _fuzz(fuzzed, name, 6)


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - ENDLESS))
def test_many_fuzzed_requests_are_answered(fuzzed: tuple[RunningGateway, requests.Session], name: str) -> None:
    _fuzz(fuzzed, name, 2_000)
