"""sealcast check, as a command: what it prints and how it exits. What it finds is tests/pipeline/test_checker.py."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shell import sealcast


def test_a_clean_realm(delivered: Path) -> None:
    result = sealcast("check")
    assert result.code == 0 and "NOT OK" not in result.out
    document = sealcast("check", "quotes", "--json").document
    assert {k: document[k] for k in ("ok", "batches", "events", "deliveries")} == {
        "ok": True,
        "batches": 1,
        "events": 4,
        "deliveries": 4,
    }
    assert [document[k] for k in ("lost", "duplicated", "out_of_order", "unexpected", "problems")] == [0, 0, 0, 0, []]
    assert sealcast("check", "--reference", "--json").document == document


def test_damage_is_refused_with_its_name(delivered: Path) -> None:
    (piece,) = (delivered / "topics" / "quotes" / "pieces").glob("*.piece")
    piece.unlink()
    result = sealcast("check")
    assert result.code == 1 and "NOT OK" in result.out and piece.name in result.out
    document = sealcast("check", "--json")
    assert document.code == 1
    assert document.document["ok"] is False and document.document["lost"] == 4
    assert {p["kind"] for p in document.document["problems"]} == {"lost", "piece", "counts"}


def test_an_unknown_topic(delivered: Path) -> None:
    result = sealcast("check", "quotas")
    assert result.code == 1 and "did you mean 'quotes'?" in result.err


def test_a_realm_without_topics(tmp_path: Path) -> None:
    sealcast("init", tmp_path / "r")
    result = sealcast("check", "--realm", tmp_path / "r", "--json")
    assert result.code == 0 and result.document["ok"] is True
