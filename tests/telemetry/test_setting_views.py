"""Views of what was asked for and of what is set: requests of jobs, settings of queues and pools, limits of users."""

import json
from collections.abc import Iterator

import msgspec
import pytest

from fairlead_schemas.queuefile.settings import Budget, PoolSettings, QueueSettings
from fairlead_schemas.units.timestamps import HOUR_NS
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import START_NS, Story, submitted


def settings_story() -> Story:
    """Two pools, three queues of which one goes, and two jobs."""
    s = Story()
    research = QueueSettings(
        pool="a100",
        guaranteed={"gpu": 8000, "memory": 1024},
        maximum={"gpu": 16000},
        lending={"gpu": 2000},
        weight=3,
        users={"ada": {"gpu": 4000, "memory": 2048}, "bob": {}, "*": {"gpu": 1000}},
        budget=Budget(gpu_milli_s=100 * 3_600_000, when_spent="demote"),
    )
    pool = PoolSettings(sequencer="fairshare", users=("ada",), prices={"NVIDIA A100": 2000})
    s.at(0, ev.PoolConfigured(cause="cmd:p", pool="a100", settings=pool))
    s.at(0, ev.PoolConfigured(cause="cmd:p", pool="gone", settings=PoolSettings()))
    for path, settings in (("research", research), ("research/llm", QueueSettings()), ("old", research)):
        s.at(1, ev.QueueConfigured(cause="cmd:q", path=path, settings=settings))
    s.at(2, ev.QueueRemoved(cause="cmd:q", path="old"), ev.PoolRemoved(cause="cmd:q", pool="gone"))
    spec = {"command": ["python", "train.py"], "args": ["--lr=1"], "image": "torch:2", "labels": {"team": "llm"}}
    whole = submitted("1", gpus=4, nodes=2, total_ns=HOUR_NS, retries=2, deadline_ns=START_NS + HOUR_NS)
    s.at(10, msgspec.structs.replace(whole, spec=msgspec.Raw(msgspec.json.encode(spec))))
    after = (ev.Dependency(job="1"), ev.Dependency(job="7", state="ended"))
    s.at(11, submitted("2", gpus=0, array=(0, 9), array_limit=2, after=after))
    return s


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """The story in a warehouse."""
    warehouse = Warehouse(tmp_path_factory.mktemp("settings"))
    store(warehouse, settings_story())
    yield warehouse
    warehouse.close()


def test_a_request_has_what_the_job_file_had(warehouse: Warehouse) -> None:
    """Command with arguments, image, labels, sizes of a node, limits."""
    query = """SELECT command, image, labels['team'], nodes, gpus_per_node, cpus_per_node, memory_mib_per_node, time_limit_s, retries,
      strftime(deadline, '%T'), start_after, "after", array_first FROM job_requests WHERE job = '1'"""
    assert warehouse.rows(query) == [
        (["python", "train.py", "--lr=1"], "torch:2", "llm", 2, 4.0, 1.0, 512, 3600.0, 2, "01:00:00", None, [], None)
    ]


def test_what_a_job_did_not_ask_for_is_empty(warehouse: Warehouse) -> None:
    """An array without GPUs, image, labels and limits, that waits for two jobs."""
    query = """SELECT image, labels, gpus_per_node, time_limit_s, deadline, "after", array_first, array_last, array_limit, spec->>'name'
      FROM job_requests WHERE job = '2'"""
    assert warehouse.rows(query) == [(None, {}, 0.0, None, None, ["1", "7"], 0, 9, 2, "job-2")]


def test_queues_have_their_newest_settings(warehouse: Warehouse) -> None:
    """A queue below is in the pool of the one at the top; a removed one is not there."""
    query = "SELECT * EXCLUDE settings FROM queue_settings ORDER BY path"
    assert warehouse.rows(query) == [
        ("research", "a100", 8.0, 16.0, None, 2.0, 3, 0, 100.0, "month", "demote"),
        ("research/llm", "a100", None, None, None, None, 1, 0, None, None, None),
    ]
    [(settings,)] = warehouse.rows("SELECT settings FROM queue_settings WHERE path = 'research'")
    assert json.loads(settings)["guaranteed"] == {"gpu": 8000, "memory": 1024}


def test_limits_of_users_are_one_row_each(warehouse: Warehouse) -> None:
    """Of queues that are there; a user without amounts has no limit, and says so."""
    query = "SELECT \"user\", resource, maximum FROM user_limits WHERE path = 'research' ORDER BY ALL"
    assert warehouse.rows(query) == [
        ("*", "gpu", 1.0),
        ("ada", "gpu", 4.0),
        ("ada", "memory", 2048.0),
        ("bob", None, None),
    ]
    assert warehouse.rows("SELECT count(*) FROM user_limits WHERE path <> 'research'") == [(0,)]


def test_pools_have_their_newest_settings(warehouse: Warehouse) -> None:
    """A removed one is not there."""
    query = "SELECT name, sequencer, packing, defragment, users, projects, prices FROM pools"
    assert warehouse.rows(query) == [("a100", "fairshare", "fragmentation", False, ["ada"], [], {"NVIDIA A100": 2.0})]
