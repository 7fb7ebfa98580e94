"""Requests made from the gateway's own OpenAPI document, by schemathesis with all its checks: 0 findings.

A real gateway on a real bus, without sign-on and with it; every combination of parameters (its phase "coverage") with it alone, and half as many examples without it. The seed is fixed and the number of examples small; `--schemathesis 50` sends more.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command_line_stack import CommandLineStack

pytestmark = [pytest.mark.nats, pytest.mark.slow]
RUN_S = 3600
#: What counts as taken where the document alone cannot say what is right: schemathesis' own list, with 412 (If-Match) and 422 for what a
#: schema cannot state, such as rules between fields of a job file, or names that are not there.
_TAKEN = ["2xx", "3xx", 401, 403, 404, 409, 412, 429, "5xx"]
#: A 503 is no failure of the gateway: something behind it, such as a hollow node's files, does not answer now.
_NO_FAILURE = ["2xx", "3xx", "4xx", 503]
#: Answers without an end, and waits: bounded so that the run is.
_SLOW_S = 5


def configuration(document: dict[str, Any], headers: dict[str, str]) -> str:
    """Return a schemathesis.toml: a 400, 410 or 422 counts as taken only where the document has it."""
    lines = ["seed = 1", f"request-timeout = {_SLOW_S}"]
    if headers:
        lines += ["[headers]", *(f"{name} = {json.dumps(value)}" for name, value in headers.items())]
    lines += ["[checks.positive_data_acceptance]", f"expected-statuses = {json.dumps(_TAKEN)}"]
    lines += ["[checks.not_a_server_error]", f"expected-statuses = {json.dumps(_NO_FAILURE)}"]
    for operations in document["paths"].values():
        for each in operations.values():
            also = [int(status) for status in ("400", "410", "422") if status in each["responses"]]
            if also:
                lines += [
                    "[[operations]]",
                    f"include-operation-id = {json.dumps(each['operationId'])}",
                    "[operations.checks.positive_data_acceptance]",
                    f"expected-statuses = {json.dumps([*_TAKEN, *also])}",
                ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("signed", [False, True], ids=["open", "signed"])
def test_no_request_of_the_document_finds_anything(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, signed: bool
) -> None:
    """No 5xx, no undocumented status or media type, nothing valid refused or invalid taken, no route open without a credential."""
    examples: Any = request.config.getoption("--schemathesis")
    monkeypatch.setenv("FAIRLEAD_HTTP_REFUSALS", "0")
    stack = CommandLineStack(tmp_path)
    stack.up("--runtime", "hollow", *(() if signed else ("--open",)))
    try:
        headers = {"Authorization": f"Bearer {(tmp_path / 'owner.token').read_text().strip()}"} if signed else {}
        with httpx.Client(base_url=stack.url, headers=headers) as http:
            document = http.get("/openapi.json").json()
            http.post("/v1/jobs", json={"command": ["true"]}).raise_for_status()
        (tmp_path / "schemathesis.toml").write_text(configuration(document, headers))
        ran = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                "--config-file",
                tmp_path / "schemathesis.toml",
                "run",
                f"{stack.url}/openapi.json",
                "--checks=all",
                f"--phases={'examples,coverage,fuzzing' if signed else 'examples,fuzzing'}",
                f"--max-examples={examples if signed else max(1, examples // 2)}",
                "--continue-on-failure",
                "--generation-database=none",
                "--warnings=off",
                "--no-color",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-2000:]
    finally:
        stack.run("down")
