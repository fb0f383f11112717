"""The OpenAPI document: as it is served, as it stands in docs/, and whether it says everything."""

from __future__ import annotations

import json
from pathlib import Path

from sealcast.gateway.openapi import document
from sealcast.gateway.routes import ENDPOINTS
from tests.gateway.world import RunningGateway

KEPT = Path(__file__).parents[2] / "docs" / "gateway-api.json"


def test_the_document_in_docs_is_the_one_that_is_served(served: RunningGateway) -> None:
    assert KEPT.read_bytes() == document() == served.client().get("/openapi.json").raw


def test_every_endpoint_is_in_it_once() -> None:
    paths = json.loads(document())["paths"]
    found = {(method.upper(), path): body for path, methods in paths.items() for method, body in methods.items()}
    assert found.keys() == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    names = [body["operationId"] for body in found.values()]
    assert len(set(names)) == len(names)
    for endpoint in ENDPOINTS:
        assert ("security" in found[endpoint.method, endpoint.path]) is endpoint.public, endpoint.path
