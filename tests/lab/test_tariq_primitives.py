"""`tariq/primitives`: operations are as many as the closed forms say, with every library that is here."""

from __future__ import annotations

import pytest

from sealcast.lab.tariq.primitives import CACHED, OURS, PAPER, closed_form, measure, report, works
from sealcast.primitives.pairing import available


@pytest.mark.parametrize("library", available())
def test_operations_are_as_many_as_the_closed_forms_say(library: str) -> None:
    found = [cost for d in (1, 3) for cost in measure(library, d, rounds=1)]
    assert {cost.operation for cost in found} == {"encrypt", "decrypt", "sign", "verify"}
    assert [cost for cost in found if cost.counted != cost.computed] == []
    said = report(found)
    assert said.experiment == "tariq/primitives" and said.rows[0]["printed"] is None
    kinds = {(cost.operation, cost.form) for cost in found}
    assert kinds == {(operation, form) for operation, form, _, _ in works(library, 1)}


def test_the_closed_forms_are_those_of_the_specification() -> None:
    """Of d = 4 with 9 labels: paper's tags 36 pairings, cached none; 9 to decrypt, 7 to verify."""
    assert closed_form("encrypt", PAPER, 4, powers=True) == {"pairing": 36, "power": 1, "times1": 36, "times2": 9}
    assert closed_form("encrypt", CACHED, 4, powers=True) == {"power": 37, "times1": 36, "times2": 5}
    assert closed_form("encrypt", OURS, 4, powers=True) == {"power": 1, "times1": 41}
    assert closed_form("encrypt", OURS, 4, powers=False) == {"pairing": 1, "times1": 42}
    assert closed_form("decrypt", PAPER, 4, powers=True) == {"pairing": 9}
    assert closed_form("verify", OURS, 4, powers=False) == {"pairing": 7, "times1": 7, "times2": 3}
    assert closed_form("sign", PAPER, 4, powers=True) == {"times1": 4}
