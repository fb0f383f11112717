"""The measurements of suite `attribute`, in small: what they compare is what they say, and every row is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sealcast.bench.suites import SUITES
from sealcast.primitives.pairing import available

BESIDE_MCL = pytest.mark.skipif("fast" not in available(), reason="measured beside mcl, which has no wheel here")


@BESIDE_MCL
def test_rows_beside_the_library() -> None:
    from sealcast.bench.attribute import decrypt_row, verify_row

    decrypt, verify = decrypt_row(rounds=1), verify_row(rounds=1)
    assert "9 decode1, 9 pairing" in decrypt.reference_name, "d = 4: 2 d + 1 of each"
    assert "7 pairing" in verify.reference_name, "d + 3"
    for row in (decrypt, verify):
        assert row.ratio == row.ours / row.reference > 0


@BESIDE_MCL
def test_rows_beside_the_paper() -> None:
    from sealcast.bench.attribute import encrypt_cached_row, encrypt_row, route_row

    rows = [encrypt_row(rounds=1), encrypt_cached_row(rounds=1), route_row(rounds=1)]
    assert [row.name for row in rows] == ["encrypt", "encrypt-cached", "route"]
    assert all(row.ratio == pytest.approx(row.reference / row.ours) and row.ratio > 1 for row in rows)


@BESIDE_MCL
def test_publishing_prints_how_many_headers_were_reused() -> None:
    from sealcast.bench.attribute import publish_row

    row = publish_row(frames=2, sets=10)
    assert "99.50% of events reuse a header" in row.reference_name and row.ratio == row.ours / row.reference


def test_the_suite_has_them() -> None:
    assert SUITES["attribute"] == ("attribute", "attribute_cores")


def test_where_the_fast_library_has_no_package_the_suite_says_so() -> None:
    hidden = "import sys; sys.modules['pymcl'] = None; from sealcast.cli.main import main; main(['bench', 'attribute'])"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "the fast pairing library, which is not installed here" in done.stderr and "run it there" in done.stderr
