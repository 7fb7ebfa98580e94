"""The guard before a server starts: stores and configurations that do not suit each other are refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairlead_bus.nats.adapter import connect
from fairlead_bus.nats.store_check import check_store, has_cluster_block, is_of_cluster, stored_streams
from fairlead_bus.port import ServerUnfit, Unavailable
from tests.kit.nats_cluster import NatsCluster
from tests.kit.nats_server import NatsServer

CLUSTER = 'cluster { name: c, listen: "127.0.0.1:1", routes: [nats://127.0.0.1:1] }\n'
JETSTREAM = 'jetstream {\n  store_dir: "/data"\n}\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (JETSTREAM, False),
        (JETSTREAM + CLUSTER, True),
        ("cluster: {\n name: c }", True),
        ('"cluster" = { name: c }', True),
        ("Cluster {}", True),
        ("# cluster {}\n// cluster {}\nport: 4222 # cluster {}", False),
        ("x { cluster { name: c } }", False),
        ("server_name: cluster\nport: 1", False),
        ('server_name: "a { b"\n' + CLUSTER, True),
        ("leafnodes { remotes: [{url: nats://a:1}] } // one line\n" + CLUSTER, True),
    ],
)
def test_a_cluster_block_is_found_where_the_server_would_find_it(tmp_path: Path, text: str, expected: bool) -> None:
    """At the top level, however it is spelled; not in comments, values and other blocks."""
    config = tmp_path / "nats.conf"
    config.write_text(text)
    assert expected is has_cluster_block(config)


def test_an_included_file_counts(tmp_path: Path) -> None:
    """Relative to the configuration; a missing one is refused, as the server would."""
    config = tmp_path / "nats.conf"
    config.write_text(f'{JETSTREAM}include "bus/more.conf"\n')
    with pytest.raises(ServerUnfit, match=r"bus/more\.conf"):
        has_cluster_block(config)
    (tmp_path / "bus").mkdir()
    (tmp_path / "bus" / "more.conf").write_text(CLUSTER)
    assert has_cluster_block(config)


def test_an_empty_store_suits_every_configuration(tmp_path: Path) -> None:
    """As does one that does not exist yet: so begin one server and three."""
    config = tmp_path / "nats.conf"
    for text in (JETSTREAM, JETSTREAM + CLUSTER):
        config.write_text(text)
        check_store(tmp_path / "none", config)


@pytest.mark.nats
async def test_a_single_servers_store_is_not_opened_by_a_cluster(fresh_nats: NatsServer, tmp_path: Path) -> None:
    """The command ends with 1 and names the streams and the cure; without the block it ends with 0."""
    bus = await connect(fresh_nats.url)
    await bus.ensure()
    await bus.close()
    fresh_nats.stop()
    config = tmp_path / "nats.conf"
    config.write_text(JETSTREAM)
    assert _guard(fresh_nats.store_dir, config).returncode == 0
    config.write_text(JETSTREAM + CLUSTER)
    refused = _guard(fresh_nats.store_dir, config)
    assert refused.returncode == 1
    for word in ("single server", "LOG", "fairlead audit archive", "fairlead audit restore"):
        assert word in refused.stderr


def _guard(store: Path, config: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "fairlead_bus", "check-store", str(store), "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.nats
async def test_a_clusters_store_is_not_opened_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its streams would seem to be missing, and a new log be made in their place."""
    cluster = NatsCluster()
    try:
        cluster.start()
        monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", cluster.monitor)
        monkeypatch.setenv("FAIRLEAD_NATS_REPLICAS", "3")
        bus = await connect(cluster.url)
        await bus.ensure()
        await bus.close()
        server = cluster.servers[0]
        server.stop()
        assert is_of_cluster(server.store_dir) and "LOG" in stored_streams(server.store_dir)
        check_store(server.store_dir, server.configuration)
        alone = tmp_path / "nats.conf"
        alone.write_text(JETSTREAM)
        with pytest.raises(ServerUnfit, match="no `cluster` block"):
            check_store(server.store_dir, alone)
    finally:
        cluster.close()


@pytest.mark.nats
async def test_without_the_guard_a_clusters_servers_do_not_know_the_log(fresh_nats: NatsServer) -> None:
    """The start that the guard refuses, made on a copy: the log is in the store, and the cluster answers that there is no such
    stream (half a minute later the server deletes it). The original is untouched.
    """
    bus = await connect(fresh_nats.url)
    await bus.ensure()
    await bus.append("LOG", "fairlead.log.queue", b"{}", expected=0)
    await bus.close()
    fresh_nats.stop()
    cluster = NatsCluster(store_of_first=fresh_nats.store_dir)
    try:
        cluster.start()
        assert "LOG" in stored_streams(cluster.servers[0].store_dir)
        with pytest.raises(ServerUnfit, match="single server"):
            check_store(fresh_nats.store_dir, cluster.servers[0].configuration)
        bus = await connect(cluster.url)
        with pytest.raises(Unavailable, match="stream not found"):
            await bus.state("LOG")
        await bus.close()
    finally:
        cluster.close()
    fresh_nats.start()
    bus = await connect(fresh_nats.url)
    assert (await bus.state("LOG")).last == 1
    await bus.close()
