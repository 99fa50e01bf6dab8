from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CHECKS, load_all_checks

PROMISES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def test_every_answer_is_the_one_that_the_schema_promises(app, client) -> None:
    """Requests made from the schema, right and wrong ones; ``client`` keeps the application started."""
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in PROMISES]
    asked: set[str] = set()
    for found in schemathesis.openapi.from_asgi("/openapi.json", app).get_all_operations():
        operation = found.ok()
        for mode in schemathesis.GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)

            @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(case=strategy)
            def ask(case) -> None:
                asked.add(case.path)
                case.call_and_validate(checks=checks)

            if mode.is_negative and not operation.body:
                continue  # there is nothing to get wrong
            ask()
    assert {"/v1/score", "/v1/generate", "/v1/fill", "/v1/explain", "/v1/completions"} <= asked
