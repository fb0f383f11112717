"""The dashboard shows metrics that exist, by labels that they have: as the pages of daemons really show them."""

from __future__ import annotations

import json
import re
import urllib.request
from importlib.resources import files
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sealcast.broker.metrics_page import serve
from sealcast.gateway.metrics import GatewayMetrics
from sealcast.pipeline.metrics import FinishedBatch, Metrics

#: PromQL's own words among what looks like a label.
_LABELS = re.compile(r"\bby \(([a-z_, ]+)\)")
_SELECTED = re.compile(r"([a-z_]+)=~?\"")
_NAMES = re.compile(r"\bsealcast_[a-z_]+")


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files("sealcast.telemetry") / "dashboard.json").read_text())
    return found


def samples(registry: CollectorRegistry) -> dict[str, set[str]]:
    """The names of samples on a page, and the labels that each has."""
    with serve(registry, 0) as served:
        page = urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics").read().decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def exposed() -> dict[str, set[str]]:
    """What `run` and `gateway` show when something has happened."""
    pipeline, gateway = Metrics(), GatewayMetrics()
    pipeline.watch(lambda: [("quotes", "broker", 3)])
    pipeline.known("quotes", ["broker"])
    pipeline.started("quotes")
    pipeline.record(FinishedBatch("q", 1, {"frames": 1}, 0.5, 0, 7, "quotes", {"broker": {"frames": 1}}))
    gateway.lags(lambda: [("quotes", "broker", 3)])
    gateway.answered("/v1/realm", 200, 0.1, 10, 10)
    gateway.frames("quotes", "broker", 1)
    gateway.refused("bogus")
    return samples(pipeline.registry) | samples(gateway.registry)


def test_every_metric_of_the_dashboard_exists_with_its_labels() -> None:
    shown, known = dashboard(), exposed()
    queries = [target["expr"] for panel in shown["panels"] for target in panel["targets"]]
    queries += [variable["definition"] for variable in shown["templating"]["list"] if "definition" in variable]
    named = {name for query in queries for name in _NAMES.findall(query)}
    assert len(named) > 15 and named <= known.keys(), named - known.keys()
    for query in queries:
        asked = {label.strip() for group in _LABELS.findall(query) for label in group.split(",")}
        asked |= set(_SELECTED.findall(query))
        for name in _NAMES.findall(query):
            assert asked <= known[name], (query, asked - known[name])


def test_no_metric_is_labelled_by_who_or_what() -> None:
    allowed = {"topic", "broker", "reason", "route", "status", "le"}
    for name, labels in exposed().items():
        assert labels <= allowed, (name, labels)


def test_counters_of_the_pipeline_are_all_shown() -> None:
    """What nobody sees is found out too late: every family of the pages is on the dashboard, but those below."""
    text = json.dumps(dashboard())
    left = {"sealcast_batches", "sealcast_frames"}  # seen by the histogram of batches, and as the lag
    for name in exposed():
        family = re.sub(r"_(total|created|bucket|sum|count)$", "", name)
        assert family in left or family in text, name


def test_panels_do_not_lie_on_each_other() -> None:
    taken = set[tuple[int, int]]()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
