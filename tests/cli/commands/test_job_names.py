"""Jobs by their names, for verbs that look: the user's newest of the name, else anybody's."""

from collections.abc import Callable

import httpx
import pytest

from tests.cli.conftest import Run
from tests.cli.gateway_stub import Answer, GatewayStub, job_document, page


def jobs_of(users: dict[str, str]) -> Callable[[httpx.Request], Answer]:
    """Answer a list with the newest job of the asked user ("": of all)."""

    def answer(request: httpx.Request) -> Answer:
        params = request.url.params
        assert (params["name"], params["elements"], params["limit"]) == ("train-llm", "false", "1")
        job = users.get(params.get("user", ""))
        return 200, page(*([job_document(job)] if job else []))

    return answer


@pytest.mark.parametrize(("users", "job"), [({"ada": "7", "": "9"}, "7"), ({"": "9"}, "9")])
def test_a_name_is_the_newest_job_of_that_name(gateway: GatewayStub, run: Run, users: dict[str, str], job: str) -> None:
    """One's own first: names such as "train" are everybody's."""
    gateway.answers["GET", "/v1/jobs"] = jobs_of(users)
    gateway.on("GET", f"/v1/jobs/{job}", job_document(job, nodes=[]))
    ran = run("show", "train-llm", "-o", "name")
    assert (ran.code, ran.out) == (0, f"job/{job}\n")


def test_a_name_that_no_job_has_is_not_found(gateway: GatewayStub, run: Run) -> None:
    """And verbs that change something take ids alone."""
    gateway.answers["GET", "/v1/jobs"] = jobs_of({})
    ran = run("why", "train-llm")
    assert (ran.code, ran.err) == (3, 'error: no job has the id or the name "train-llm"\nhint: fairlead jobs --all\n')
    before = len(gateway.requests)
    assert (run("cancel", "train-llm").code, len(gateway.requests)) == (2, before)
