"""Loads of the rows `crowded` and `gangs`: they are as the rows state, and each row is measured. No figure is looked at."""

import pytest

from bench import crowd, gangs
from bench.stack import Stack
from fairlead_schemas.jobfile import job_spec, resolve
from fairlead_schemas.queuefile.parse import read_queue_file


def test_the_load_is_the_same_each_time_and_as_large_as_its_rate_states() -> None:
    """40,000 jobs of every size in every queue; the ideal rate is that of 4,000 GPUs that are never idle."""
    load = crowd.load()
    assert load.jobs == crowd.load().jobs
    assert len(load.jobs) == 40_000
    gpu_s = sum(job["resources"]["nvidia.com/gpu"] * float(job["command"][1]) for job in load.jobs)
    assert load.ideal == pytest.approx(4_000 / (gpu_s / 40_000))
    assert load.ideal == pytest.approx(7_100, rel=0.02)
    cpus_per_gpu = {job["resources"]["cpu"] / job["resources"]["nvidia.com/gpu"] for job in load.jobs}
    assert cpus_per_gpu == {2, 4, 8}
    assert {job["queue"] for job in load.jobs} == set(crowd.queue_names())


def test_queues_guarantee_three_quarters_of_the_gpus() -> None:
    """The rest is borrowed; those with the least load may borrow only some of it."""
    entries = {entry.path: entry.settings for entry in read_queue_file(crowd.queue_file()).queues}
    leaves = [entries[name] for name in sorted(set(crowd.queue_names()))]
    assert len(leaves) == 30
    assert sum(each.guaranteed["gpu"] for each in leaves) == 3_000_000
    assert sum("gpu" in each.borrowing for each in leaves) == 12


def test_the_decisions_alone_end_every_job() -> None:
    """In both cores, with the queues of the load; a job that no queue takes is an error and no rate."""
    assert crowd.decisions_per_s(crowd.load(300).jobs) > 0
    with pytest.raises(ValueError, match="no-such-queue"):
        crowd.decisions_per_s([{**crowd.load(1).jobs[0], "queue": "no-such-queue"}])


def test_gangs_are_of_the_size_that_their_row_states() -> None:
    """Units of one GPU each, and labels that differ, by which a page's row is found."""
    assert len({load.what for load in gangs.LOADS}) == len(gangs.LOADS)
    for load in gangs.LOADS:
        assert len(load.jobs()) == load.gangs
        request = resolve.resolve(job_spec.job_from(load.jobs()[0]), command_id="1", user="u").request
        assert (request.units, request.gpu_milli) == (load.ranks, 1_000)


@pytest.mark.slow
@pytest.mark.nats
async def test_each_crowded_row_is_measured() -> None:
    """A short load on the whole stack: its rate, its CPU by process, and the time of each service's decisions."""
    rows = await crowd.rows(300)
    assert len(rows) == 3
    assert {"queue", "placer", "gateway", "telemetry", "nats", "hollow"} <= set(rows[0].cpu.replace(",", "").split())
    assert "queue" in rows[2].measured
    assert "placer" in rows[2].measured


@pytest.mark.slow
@pytest.mark.nats
async def test_gangs_start_and_are_gone_afterwards() -> None:
    """A round leaves an empty cluster: as many rounds as gangs that would not fit together."""
    load = gangs.LOADS[-1]._replace(gangs=4, rounds=3)
    rows = await gangs.rows((load,), nodes=4)
    assert "ranks/s" in rows[0].measured
    assert "placer" in rows[0].cpu


@pytest.mark.slow
@pytest.mark.nats
async def test_a_refused_job_is_an_error() -> None:
    """Not a fast row, and no endless one."""
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="no-such-queue")):
            await crowd.run(stack, crowd.Load([{"command": ["true"], "queue": "no-such-queue"}], 1.0))
