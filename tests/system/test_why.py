"""Reasons of unplaced jobs, from a real stack: every answer on the page equals the output. After an intended change:
`make test ARGS="tests/system/test_why.py --update-golden"`, and read the difference."""

from pathlib import Path

import pytest

from tests.system.pages import answers, play, started

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "why.md"
#: {a case that must be on the page: what its answer says, in numbers}
CASES = {
    "another model": "of 4 nodes 4 have another GPU model; asks for NVIDIA-H100-80GB-HBM3; the cluster has 4 nodes with",
    "NUMA": "asks for 6 GPUs and 12 CPUs on one NUMA node; no NUMA node of the cluster has more than 4 GPUs and 112 CPUs",
    "rack": "no rack takes 3 nodes: the largest has 2; of 4 nodes 4 could take part",
    "taint": "3 could take part; 1 node has the taint team=vision:NoSchedule",
    "drained": "2 are draining or drained, 2 could take part; hollow-3 is drained (new driver), hollow-4 is drained (new driver)",
    "fragmentation": "16 GPUs are free, no node has 8 together: hollow-1 4, hollow-2 4, hollow-3 4, hollow-4 4",
    "quota": "queue team is at 2 of 4 GPUs; this needs 4",
    "kept for it": "hollow-1, hollow-2, hollow-3, hollow-4 are kept for it from about",
    "kept for another": "4 are kept for other jobs; hollow-1, hollow-2, hollow-3, hollow-4 are kept for job 13 from about",
    "held queue": "queue team is held by owner: nothing new of it starts (storage moves until noon)",
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_has_every_case(case: str) -> None:
    """Output that was printed again after a change still fits its text."""
    told = [printed for line, printed in answers(PAGE) if line.startswith("fairlead why")]
    assert any(CASES[case] in printed for printed in told), told


@pytest.mark.nats
@pytest.mark.slow
def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, on one cluster."""
    update = bool(request.config.getoption("--update-golden"))
    with started(PAGE, tmp_path, monkeypatch, update=update) as terminal:
        # Jobs that end within a millisecond of each other are named in either order.
        terminal.varies = ((r"by the limits of jobs [\d, ]+ and", "by the limits of jobs N and"),)
        play(terminal, PAGE)
