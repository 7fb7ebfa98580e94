"""Ownership of containers: by journal, name and epoch; two clusters on one engine each have their own."""

from pathlib import Path

import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.docker.adoption import Installation, There, is_ours
from fairlead_agent.runtimes.docker.template import (
    LABEL_ATTEMPT,
    LABEL_EPOCH,
    LABEL_INCARNATION,
    LABEL_JOB,
    LABEL_RANK,
    container_name,
)

KEY = RunKey("812", 1, 0)
OURS = Installation("n1", "/var/lib/fairlead/agent-n1", "journal-1")


def there(name: str, *, journal: str = "journal-1", epoch: int = 9) -> There:
    labels = {
        LABEL_JOB: "812",
        LABEL_ATTEMPT: "1",
        LABEL_RANK: "0",
        LABEL_INCARNATION: journal,
        LABEL_EPOCH: str(epoch),
    }
    return There("c0ffee", name, "running", labels)


def test_a_name_says_run_and_installation() -> None:
    """A later journal of the same directory makes the same one, so that the engine refuses a second start; another directory or
    node does not."""
    assert container_name(KEY, gang=False, whose=OURS.mark) == f"fairlead-812-1-{OURS.mark}"
    assert container_name(KEY._replace(rank=2), gang=True, whose=OURS.mark) == f"fairlead-812-1-r2-{OURS.mark}"
    assert OURS._replace(incarnation="journal-2").mark == OURS.mark
    assert len({OURS.mark, OURS._replace(directory="/data/agent-n1").mark, OURS._replace(node="n2").mark}) == 3


@pytest.mark.parametrize(
    ("found", "ours"),
    [
        (there(container_name(KEY, gang=False, whose=OURS.mark)), True),
        (there(container_name(KEY, gang=True, whose=OURS.mark)), True),
        (there("fairlead-812-1"), True),  # an older agent made it
        (there("fairlead-812-1-r0"), True),
        (there(container_name(KEY, gang=False, whose=OURS._replace(node="n2").mark)), False),
        (there("fairlead-812-2"), False),
        (there("fairlead-812-1", journal="journal-2"), False),
        (there("fairlead-812-1", epoch=8), False),
    ],
)
def test_a_container_is_ours_by_journal_name_and_epoch(found: There, ours: bool) -> None:
    """Also one that was made before names had marks."""
    assert is_ours(found, OURS, {KEY: 9}) is ours


@pytest.mark.docker
async def test_two_clusters_on_one_engine_may_both_have_the_job(tmp_path: Path) -> None:
    """Nodes of one name, in directories of their own: each has its run, and ends only that."""
    from fairlead_agent.runtimes.docker.runtime import DockerRuntime
    from tests.agent.runtime_watch import Watch, incarnation, launch
    from tests.agent.runtimes.docker.image import SOCKET, ensure_image

    both = [
        (DockerRuntime(tmp_path / name, "n1", incarnation(), simulated=True, socket=SOCKET), Watch()) for name in "ab"
    ]
    for runtime, watch in both:
        await runtime.open(watch.handle)
        await runtime.adopt([])
        runtime.start(launch("812", "sleep", "600", image=ensure_image()))
    for _, watch in both:
        await watch.until(lambda watch=watch: bool(watch.starts or watch.failures))
        assert watch.failures == {}
    (first, first_watch), (_, second_watch) = both
    first.kill(KEY)
    assert (await first_watch.exit_of(KEY)).signal == 9
    assert second_watch.exits == {}
    for runtime, _ in both:
        await runtime.adopt([])  # which ends what no journal knows
        await runtime.close()
