"""The stub gateway answers what the OpenAPI document has, and nothing else."""

import httpx
import pytest

from tests.cli.gateway_stub import GatewayStub, job_document, page, queue_document


def sent(stub: GatewayStub, method: str, url: str, **request: object) -> httpx.Response:
    """Send one request to a stub that answers lists and one job."""
    stub.on("GET", "/v1/jobs", page(job_document()))
    stub.on("GET", "/v1/maintenance", page())
    stub.on("GET", "/v1/queues/research/vision", queue_document("research/vision"))
    stub.on("POST", "/v1/jobs/812:hold", job_document())
    with httpx.Client(transport=httpx.MockTransport(stub), base_url="http://gateway.test") as http:
        return http.request(method, url, **request)  # type: ignore[arg-type] -- passed on as they are


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", "/v1/jobs?limit=10&state=running"),
        ("GET", "/v1/maintenance?limit=1000&continue=abc"),
        ("GET", "/v1/queues/research/vision"),
        ("POST", "/v1/jobs/812:hold"),
    ],
)
def test_a_request_of_the_document_is_answered(method: str, url: str) -> None:
    """Queues have slashes in their paths, and verbs are paths of their own."""
    assert sent(GatewayStub(), method, url).status_code == 200


@pytest.mark.parametrize(
    ("method", "url", "request_", "found"),
    [
        ("GET", "/v1/machines", {}, "no such path"),
        ("PUT", "/v1/jobs/812", {}, "expected GET, PATCH"),
        ("GET", "/v1/jobs?stat=running", {}, "query parameters"),
        ("GET", "/v1/breaker?limit=1000", {}, "expected of query parameters at, found limit"),
        ("GET", "/v1/jobs?limit=0", {}, "limit"),
        ("GET", "/v1/use", {}, "jobs is missing"),
        ("POST", "/v1/jobs/812:hold", {"json": {"because": "x"}}, "because"),
        ("POST", "/v1/jobs", {}, "expected a body"),
        ("POST", "/v1/jobs", {"json": {"nodes": 1, "colour": "red"}}, "colour"),
        ("POST", "/v1/jobs/812:hold", {"headers": {"X-Fairlead-User": "Ada Lovelace"}}, "X-Fairlead-User"),
    ],
)
def test_a_request_that_the_document_does_not_have_fails_the_test(
    method: str, url: str, request_: dict[str, object], found: str
) -> None:
    """A gateway would refuse it; the stub must not answer it."""
    with pytest.raises(AssertionError, match=found):
        sent(GatewayStub(), method, url, **request_)


def test_an_answer_that_is_not_of_its_schema_fails_the_test() -> None:
    """A test with a document that no gateway sends proves nothing about the command line."""
    stub = GatewayStub()
    stub.on("GET", "/v1/jobs/1", {"id": "1"})
    with pytest.raises(AssertionError, match="required property"):
        sent(stub, "GET", "/v1/jobs/1")
    stub.on("GET", "/v1/jobs/1", job_document("1"), status=299)
    with pytest.raises(AssertionError, match="found 299"):
        sent(stub, "GET", "/v1/jobs/1")
