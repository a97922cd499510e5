"""Responses conform to the OpenAPI schema of /api/docs.json, for any request."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from page.serve.fakes import Fake, looked, place_of, record_of
from regard.page.serve import make_app

LENGTH = 9
app = make_app([Fake()], {"kept": record_of(place_of(LENGTH))}, hosts=("testserver",), collect=looked)
schema = schemathesis.openapi.from_asgi("/api/docs.json", app)
# Whether a part is there depends on the record, and is no matter of the schema.
LEFT_OUT = ["positive_data_acceptance"]


@schema.parametrize()
@settings(
    max_examples=settings.default.max_examples // 2,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_responses_conform_to_the_schema(case) -> None:
    if case.meta.generation.mode is GenerationMode.POSITIVE:
        lead_to_what_is_there(case)
    case.call_and_validate(excluded_checks=[check for check in CHECKS.get_all() if check.__name__ in LEFT_OUT])


def lead_to_what_is_there(case: Any) -> None:
    """Let half of the valid requests find their record: random ids would not."""
    name = str(case.path_parameters.get("id", ""))
    if len(name) % 2:
        case.path_parameters["id"] = "kept"
        small = {"place": 0, "head": 1, "top": 1, "bottom": LENGTH, "left": 0, "right": 5, "rows": 2, "cols": 3}
        given = {**small, "query": 4, "key": 5}
        case.query = {key: given.get(key, value) for key, value in (case.query or {}).items()}
    if isinstance(case.body, dict) and len(case.body.get("text", "")) % 2:
        case.body["run"] = "fake"


def test_every_route_documents_its_errors_in_one_shape() -> None:
    told = app.openapi()
    assert {path for path in told["paths"] if not path.startswith("/api/")} == set()
    expected = {"400", "403", "422", "500", "503"}
    for path, methods in told["paths"].items():
        for method in methods.values():
            assert expected <= set(method["responses"]), path
            for status, response in method["responses"].items():
                if status >= "400":
                    shape = response["content"]["application/json"]["schema"]
                    assert shape == {"$ref": "#/components/schemas/ErrorResponse"}, (path, status)
    assert {"404", "408", "413", "429", "504"} <= set(told["paths"]["/api/look"]["post"]["responses"])


@pytest.mark.parametrize("name", ["message", "problem", "expected", "where", "advice"])
def test_the_shape_has_its_parts(name: str) -> None:
    assert app.openapi()["components"]["schemas"]["ErrorDetail"]["properties"][name]["type"] == "string"
