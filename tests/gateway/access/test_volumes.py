"""Volumes of jobs: what names mean at submit, where such jobs start, and the answers to a node that starts one."""

from typing import Any

import msgspec
import pytest

from fairlead_bus.input_source import CommandSource
from fairlead_bus.service import Service
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.volumes import AskVolumes, VolumeGrant, VolumeGrants, decode_grants, encode_volumes
from fairlead_storage.core import StorageCore
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async

JOB = {"command": ["true"], "image": "busybox:1", "queue": "research"}


async def ready(world: SignedWorld) -> None:
    """A queue with its volume `data` and two members, of whom eve may only read the volume `mine` of ann."""
    await world.configure(research={})
    await world.storage(cmd.SetStorageClass, name="shared", backend="directory", user_bytes_max=8 << 30)
    for name in ("ann", "eve"):
        await world.person(name, member="queue:research")
    for name, owner in (("data", "queue:research"), ("mine", "user:ann")):
        await world.storage(cmd.CreateVolume, volume=name, owner=owner, storage_class="shared", quota_bytes=1 << 30)
    await world.grant("eve", "viewer", "volume:mine")


async def submitted(world: SignedWorld, who: str, status: int = 201, **job: Any) -> dict[str, Any]:
    """Submit a job as a person."""
    answer = await world.ask(who, "POST", "/v1/jobs", json={**JOB, **job})
    assert answer.status_code == status, answer.text
    return answer.json()


async def mentions(world: GatewayWorld, job: str, word: str) -> bool:
    """Return True once the reasons for which a job waits contain a word."""
    return word in str(await world.why(job))


async def asked(world: GatewayWorld, node: str, job: str, attempt: int = 1, rank: int = 0) -> VolumeGrants:
    """Ask as a node."""
    question = encode_volumes(AskVolumes(job=job, attempt=attempt, rank=rank))
    return decode_grants(await world.hub.connect().request(subjects.volumes(node), question, timeout_s=10))


async def test_a_job_with_a_volume_starts_where_its_class_is_mounted() -> None:
    """A node without the class, or with another backend of its name, does not get it, and `why` names the label."""
    async with SignedWorld() as world:
        await ready(world)
        await world.node("n1", runtime="docker")
        await world.node("n2", runtime="docker", shared="nfs")
        job = (await submitted(world, "ann", volumes={"data": "/data"}))["id"]
        await world.in_state(job, "offered")
        await eventually_async(lambda: mentions(world, job, "fairlead/storage.shared"))
        await world.node("n3", runtime="docker", shared="directory")
        await world.in_state(job, "placed")
        assert (await world.job(job))["nodes"] == ["n3"]
        answer = await asked(world, "n3", job)
        assert answer.several_users and answer.volumes == [
            VolumeGrant(
                name="data",
                made=world.gateway.views.storage.volumes["data"].sequence,
                storage_class="shared",
                backend="directory",
                quota_bytes=1 << 30,
                uid=2_000_000_000,
                write=True,
            )
        ]
        for node, attempt, rank in (("n1", 1, 0), ("n3", 2, 0), ("n3", 1, 1), ("n3", 1, -1)):
            assert await asked(world, node, job, attempt, rank) == VolumeGrants(unknown=True)
        assert await asked(world, "n3", "999") == VolumeGrants(unknown=True)
        payload = await world.hub.connect().request(subjects.volumes("n3"), b"{", timeout_s=10)
        assert decode_grants(payload) == VolumeGrants(unknown=True)


async def test_who_may_only_read_says_so_in_the_file() -> None:
    """In both forms of the field, at submit and in a dry run; a volume that one may not see is a name like any other."""
    async with SignedWorld() as world:
        await ready(world)
        for volumes, field in (([{"name": "mine", "mountPath": "/m"}], "volumes[0]"), ({"mine": "/m"}, "volumes.mine")):
            for path in ("/v1/jobs", "/v1/jobs:dryrun"):
                refused = await world.ask("eve", "POST", path, json={**JOB, "volumes": volumes})
                assert refused.status_code == 422
                (error,) = refused.json()["errors"]
                assert error["field"] == field and '"mine:/m:ro"' in error["message"]
        await submitted(world, "eve", volumes=["mine:/m:ro"])
        await world.revoke("eve", "viewer", "volume:mine")
        for name in ("mine", "none"):
            job = (await submitted(world, "eve", volumes=[f"{name}:/m"]))["id"]
            spec = bytes(world.gateway.views.jobs.rows[job].spec)
            assert b"made" not in spec and b"storage" not in spec


async def test_a_file_cannot_state_which_volume_it_means() -> None:
    """The gateway sets `made`, also where a file of an earlier job brings one along."""
    async with SignedWorld() as world:
        await ready(world)
        made = world.gateway.views.storage.volumes["mine"].sequence
        words = {"name": "mine", "mountPath": "/m", "made": made}
        await world.person("bob", member="queue:research")
        job = (await submitted(world, "bob", volumes=[words]))["id"]
        assert b'"made"' not in bytes(world.gateway.views.jobs.rows[job].spec)
        job = (await submitted(world, "ann", volumes=[{**words, "made": 1}]))["id"]
        assert msgspec.json.decode(world.gateway.views.jobs.rows[job].spec)["volumes"][0]["made"] == made


async def test_a_right_that_is_taken_away_counts_at_the_next_start() -> None:
    """And a volume that was deleted, or made again, is another one."""
    async with SignedWorld() as world:
        await ready(world)
        await world.node("n1", runtime="docker", shared="directory")
        job = (await submitted(world, "eve", volumes=["mine:/m:ro"]))["id"]
        await world.in_state(job, "placed")
        (volume,) = (await asked(world, "n1", job)).volumes
        assert not volume.write
        await world.revoke("eve", "viewer", "volume:mine")
        assert (await asked(world, "n1", job)).refused == "its user may not read volume mine any more"
        await world.grant("eve", "viewer", "volume:mine")
        assert not (await asked(world, "n1", job)).refused
        await world.storage(cmd.DeleteVolume, volume="mine")
        assert "was deleted" in (await asked(world, "n1", job)).refused
        await world.storage(
            cmd.CreateVolume, volume="mine", owner="user:eve", storage_class="shared", quota_bytes=1 << 30
        )
        assert "was deleted" in (await asked(world, "n1", job)).refused


async def test_elements_of_an_array_have_its_volumes() -> None:
    """Their rows have no job file of their own."""
    async with SignedWorld() as world:
        await ready(world)
        await world.node("n1", runtime="docker", shared="directory")
        job = (await submitted(world, "ann", volumes=["data:/data"], array=2))["id"]
        await world.in_state(f"{job}_0", "placed")
        assert [each.name for each in (await asked(world, "n1", f"{job}_0")).volumes] == ["data"]


async def test_a_quota_of_now_is_in_the_answer() -> None:
    """A volume that was resized has its new quota; an image is for one node."""
    async with SignedWorld() as world:
        await ready(world)
        await world.storage(cmd.SetStorageClass, name="images", backend="ext4-image", user_bytes_max=8 << 30)
        await world.storage(
            cmd.CreateVolume, volume="disk", owner="user:ann", storage_class="images", quota_bytes=1 << 30
        )
        refused = await submitted(world, "ann", 422, volumes=["disk:/d"], nodes=2)
        assert "on one node at a time" in refused["errors"][0]["message"]
        await world.node("n1", runtime="docker", images="ext4-image")
        job = (await submitted(world, "ann", volumes=["disk:/d"]))["id"]
        await world.in_state(job, "placed")
        await world.storage(cmd.ResizeVolume, volume="disk", quota_bytes=2 << 30)
        assert [each.quota_bytes for each in (await asked(world, "n1", job)).volumes] == [2 << 30]


@pytest.mark.parametrize(("runtime", "status"), [("process", 201), ("docker", 201)])
async def test_without_sign_on_a_volume_needs_no_container(runtime: str, status: int) -> None:
    """One person's processes are all of one user; a directory of the nodes needs a container all the same."""
    async with GatewayWorld() as world:
        world.spawn(storage_service(world))
        await world.http.put("/v1/storage-classes/shared", json={"backend": "directory", "userMax": "8Gi"})
        answer = await world.http.post("/v1/volumes", json={"name": "data", "quota": "1Gi"})
        assert answer.status_code == 200, answer.text
        await world.node("n1", runtime=runtime, shared="directory")
        job = {"command": ["true"], "image": "busybox:1", "volumes": ["data:/data"]}
        answer = await world.http.post("/v1/jobs", json=job)
        assert answer.status_code == status, answer.text
        await world.in_state(answer.json()["id"], "placed")
        assert not (await asked(world, "n1", answer.json()["id"])).several_users


async def test_with_sign_on_a_cluster_of_processes_refuses_volumes() -> None:
    """Several people's processes would be of one user."""
    async with SignedWorld() as world:
        await ready(world)
        await world.node("n1", shared="directory")
        refused = await submitted(world, "ann", 422, volumes=["data:/data"])
        assert refused["errors"][0]["field"] == "volumes" and "need containers" in refused["errors"][0]["message"]


def storage_service(world: GatewayWorld) -> Any:
    """The storage service on a client of its own."""
    return Service(world.hub.connect(), StorageCore, writer="storage", sources=[CommandSource("storage")])
