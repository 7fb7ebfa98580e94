"""The demo's verdict: it must notice every way in which the morning can come out wrong."""

import contextlib
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead.commands import demo
from fairlead.demo_session import EXPLORE, FINETUNE, STORY, PartResult, StoryPart, differences
from fairlead.stack.local import Stack
from fairlead_schemas.http.api import Job
from tests.cli.gateway_stub import ended


def job(part: StoryPart, **changes: Any) -> Job:
    """The job that a part must have become."""
    gpus = part.spec["resources"]["nvidia.com/gpu"]
    nodes = [f"n{i}" for i in range(part.nodes)]
    document = ended(
        part.state,
        job_id="1",
        nodes=nodes,
        gpus={node: ["GPU"] * gpus for node in nodes},
        exit_code=part.exit_code,
        array={"succeeded": 8} if "array" in part.spec else None,
    )
    return msgspec.json.decode(msgspec.json.encode({**document, **changes}), type=Job)


def as_expected() -> dict[str, PartResult]:
    return {
        part.key: PartResult(
            part,
            None if part.refused else job(part),
            (part.refused, "m" if part.refused else ""),
            (part.waits, ""),
            part.why,
        )
        for part in (*STORY, EXPLORE, FINETUNE)
    }


ELEMENTS = {f"1_{i}": job(STORY[1]) for i in range(8)}


def test_the_expected_morning_has_no_differences() -> None:
    """Exactly what the story says is accepted."""
    assert differences(as_expected(), ELEMENTS) == []


@pytest.mark.parametrize(
    ("key", "changes", "expected"),
    [
        ("broken", {"exit_code": 4}, "broken: exit code: expected 3, found 4"),
        ("broken", {"state": "succeeded"}, "broken: state: expected 'failed', found 'succeeded'"),
        ("train", {"nodes": ["n0"]}, "train: nodes: expected 2, found 1"),
        (
            "train",
            {"gpus": {"n0": ["GPU"] * 8, "n1": ["GPU"]}},
            "train: GPUs on each node: expected [8, 8], found [8, 1]",
        ),
        ("huge", {"nodes": ["n0"]}, "huge: nodes: expected [], found ['n0']"),
    ],
)
def test_a_wrong_job_is_named(key: str, changes: dict[str, Any], expected: str) -> None:
    """A job that came out otherwise is named with what was expected and found."""
    told = as_expected()
    told[key] = told[key]._replace(job=job(told[key].part, **changes))
    assert expected in differences(told, ELEMENTS)


def test_wrong_reasons_refusals_and_elements_are_named() -> None:
    """A missing why, an accepted impossible job, a lost job and a lost element are all noticed."""
    told = as_expected()
    told["eval"] = told["eval"]._replace(waited=("", ""))
    told["wide"] = told["wide"]._replace(refusal=("", ""))
    told["explore"] = told["explore"]._replace(why="it was cancelled")
    del told["oops"]
    found = differences(told, {k: v for k, v in ELEMENTS.items() if k != "1_0"})
    assert [line.partition(":")[0] for line in found] == ["eval", "wide", "oops", "explore", "sweep"]


def test_a_demo_stays_until_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says where the pages are, with a link that signs in, and an interrupt is no error."""

    class Signing:
        token, url = "t", "http://127.0.0.1:5"

        @contextlib.contextmanager
        def client(self, user: str) -> Iterator[Any]:
            yield SimpleNamespace(sign_in_link=lambda: "/sign-in/link?code=c")

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "pause", interrupted)
    demo._stay(cast(Stack, Signing()))
    told = capsys.readouterr().err
    assert "http://127.0.0.1:5/sign-in/link?code=c" in told and "until Ctrl-C" in told
