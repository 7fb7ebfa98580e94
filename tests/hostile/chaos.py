"""`python -m tests.hostile.chaos [--rounds N] [--seed N] [--only FAULT …] [--write]`: faults in random order on three servers and two of
each service, under load from both gateways, with real agents.

Each server is on a host of its own where this process may make network namespaces (root), so that its cable can be cut. A round is one
fault; what the product does not mend by itself (a dead server, a cut cable) is mended after a while, and both gateways must answer
again. After all rounds, everything that was acknowledged is held against the log, and the programs' marks against each other. Exit 1
where something was lost or began twice. Start at `Chaos`.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.hostile.ha import Fault, Submits, longest_gap
from tests.hostile.installation import PROCESSES, WRITERS, Installation
from tests.hostile.load import Load
from tests.hostile.outcome import Row, check_load, row, table
from tests.kit import hosts
from tests.kit.nats_cluster import SERVERS
from tests.kit.nats_server import NatsServer, Place

#: Both gateways answer again within this time after the fault is over. Elections take 4 to 9 s, and follow each other.
ANSWERED_S = 60.0
#: Submits that are answered between two faults: what is hurt is at work.
CALM = 3
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "robustness.md"
BEGIN, END = "<!-- measured: chaos -->", "<!-- end -->"
NOWHERE = "02:00:00:00:00:99"


class Chaos:
    """Faults of one installation. Each method makes one, mends it, and says what it was."""

    def __init__(self, here: Installation, played: hosts.Hosts | None, rng: random.Random) -> None:
        self.here, self.played, self.rng = here, played, rng

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """{name: fault}; cables are cut only where there are some."""
        found = {
            "kill -9 of a server": self.kill_server,
            "SIGSTOP of a server, 2 to 12 s": self.hold_server,
            "a server retires, and comes back": self.retire_server,
            "kill -9 of two of three servers": partial(self.kill_servers, 2),
            "kill -9 of all three servers": partial(self.kill_servers, SERVERS),
            "kill -9 of a server, a bit of its log flipped; its store replaced later": self.flip_bit,
            "kill -9 of a writer's leader": self.kill_writer,
            "SIGTERM of a writer's leader": self.stop_writer,
            "SIGSTOP of a writer's leader, 8 s": self.hold_writer,
            "kill -9 of both processes of a service": self.kill_pair,
            "kill -9 of a gateway": self.kill_gateway,
            "kill -9 of the agents": self.kill_agents,
            "kill -9 of a server and of all leaders": self.kill_server_and_leaders,
        }
        if self.played is not None:
            found |= {
                "a server's cable cut, 3 to 15 s": self.cut,
                "a server hears nothing, 3 to 15 s": partial(self.cut_one_way, outward=False),
                "a server is not heard, 3 to 15 s": partial(self.cut_one_way, outward=True),
                "a server's cable cut and put back five times": self.flap,
                "the cables of two servers cut, 8 s": self.cut_two,
            }
        return found

    # -- servers

    def _server(self) -> NatsServer:
        return self.rng.choice(self.here.cluster.servers)

    def kill_server(self) -> None:
        server = self._server()
        server.kill()
        time.sleep(self.rng.uniform(0.0, 10.0))
        server.start()

    def hold_server(self) -> None:
        server = self._server()
        server.pause()
        time.sleep(self.rng.uniform(2.0, 12.0))
        server.resume()

    def retire_server(self) -> None:
        server = self._server()
        server.retire()
        self.here.until(lambda: not server.runs, "the retired server has ended")
        server.kill()
        server.start()

    def kill_servers(self, count: int) -> None:
        chosen = self.rng.sample(self.here.cluster.servers, count)
        for server in chosen:
            server.kill()
        time.sleep(self.rng.uniform(0.0, 5.0))
        for server in chosen:
            server.start()

    def flip_bit(self) -> None:
        """One copy of the log is damaged while its server is down; the two others have it whole. What an error in the log of services
        says is done in the end: the server gets an empty store, and its copies from the others."""
        server = self._server()
        server.kill()
        blocks = sorted(server.store_dir.rglob("streams/LOG/msgs/*.blk"))
        block = self.rng.choice([each for each in blocks if each.stat().st_size])
        data = bytearray(block.read_bytes())
        data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        block.write_bytes(data)
        server.start()
        time.sleep(self.rng.uniform(5.0, 15.0))
        server.kill()
        shutil.rmtree(server.store_dir)
        server.start()
        self.here.cluster.wait(self.here.cluster.healthy, "three healthy servers")

    # -- cables

    @contextmanager
    def _for(self, least_s: float, most_s: float) -> Iterator[hosts.Host]:
        assert self.played is not None
        name = f"bus-{self.rng.randint(1, SERVERS)}"
        yield self.played[name]
        time.sleep(self.rng.uniform(least_s, most_s))
        self.played[name].mend()

    def cut(self) -> None:
        with self._for(3.0, 15.0) as host:
            host.cut()

    def flap(self) -> None:
        with self._for(0.1, 0.2) as host:
            for _ in range(5):
                host.cut()
                time.sleep(self.rng.uniform(0.2, 2.0))
                host.mend()
                time.sleep(self.rng.uniform(0.2, 2.0))

    def cut_two(self) -> None:
        assert self.played is not None
        chosen = [self.played[f"bus-{number}"] for number in self.rng.sample(range(1, SERVERS + 1), 2)]
        for host in chosen:
            host.cut()
        time.sleep(8.0)
        for host in chosen:
            host.mend()

    def cut_one_way(self, *, outward: bool) -> None:
        """What it sends (or is sent) goes to an address that nobody has; the other direction works."""
        assert self.played is not None
        names = [name_of(number) for number in range(SERVERS + 1)]
        name = self.rng.choice(names[1:])
        pairs = [(name, other) if outward else (other, name) for other in names if other != name]
        for sender, receiver in pairs:
            self._neighbour(sender, receiver, "replace", "lladdr", NOWHERE, "nud", "permanent")
        time.sleep(self.rng.uniform(3.0, 15.0))
        for sender, receiver in pairs:
            self._neighbour(sender, receiver, "del")

    def _neighbour(self, sender: str, receiver: str, verb: str, *words: str) -> None:
        assert self.played is not None
        self.played[sender].run("ip", "neigh", verb, self.played[receiver].address, *words, "dev", "eth0")

    # -- services

    def _leader(self) -> str:
        writer = self.rng.choice(sorted(WRITERS))
        self.here.until(lambda: self.here.holder(writer), f"{writer} has a leader")
        holder = self.here.holder(writer)
        return holder.name if holder is not None else f"{WRITERS[writer]}-1"

    def kill_writer(self) -> None:
        self.here.signal(self._leader(), signal.SIGKILL)

    def stop_writer(self) -> None:
        self.here.signal(self._leader(), signal.SIGTERM)

    def hold_writer(self) -> None:
        name = self._leader()
        pid = self.here.pid(name)
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(8.0)
            os.kill(pid, signal.SIGCONT)

    def kill_pair(self) -> None:
        process = self.rng.choice(sorted(PROCESSES))
        for number in (1, 2):
            self.here.signal(f"{process}-{number}", signal.SIGKILL)

    def kill_gateway(self) -> None:
        self.here.signal(f"gateway-{self.rng.randint(1, 2)}", signal.SIGKILL)

    def kill_agents(self) -> None:
        self.here.signal("agents", signal.SIGKILL)

    def kill_server_and_leaders(self) -> None:
        leaders = {holder.name for writer in WRITERS if (holder := self.here.holder(writer)) is not None}
        server = self._server()
        server.kill()
        for name in sorted(leaders):
            self.here.signal(name, signal.SIGKILL)
        time.sleep(self.rng.uniform(0.0, 5.0))
        server.start()


def name_of(number: int) -> str:
    """The host of a server; 0: of everything else."""
    return f"bus-{number}" if number else "control"


def play(here: Installation, chaos: Chaos, rounds: int, only: list[str]) -> list[Row]:
    """Make faults in random order, each kind as often as the others, and judge."""
    faults = {name: fault for name, fault in chaos.faults.items() if not only or any(word in name for word in only)}
    load = Load(here, here.data / "jobs")
    submits = [Submits(gateway, f"g{number}") for number, gateway in enumerate(here.gateways)]
    silences: dict[str, list[float]] = defaultdict(list)
    broken: dict[str, list[str]] = defaultdict(list)
    deck: list[str] = []
    load.start()
    try:
        for number in range(rounds):
            deck = deck or chaos.rng.sample(sorted(faults), len(faults))
            name = deck.pop()
            _answered(here, submits, CALM)
            at = time.time()
            faults[name]()
            over = time.time()
            try:
                _answered(here, submits, CALM)
            except AssertionError as error:
                broken[name].append(f"round {number + 1}: no answers within {ANSWERED_S:g} s")
                print(error, flush=True)
            fault = Fault(name, name, at, None, time.time(), ())
            gaps = [longest_gap(each.answers, fault) for each in submits]
            silences[name].append(max(gaps))
            print(f"{number + 1:>4}  {name:<50.50}{over - at:5.1f} s, silent {max(gaps):5.1f} s", flush=True)
    finally:
        load.stop()
        for each in submits:
            each.stop()
    here.wait_whole()
    load.jobs.update({job: 0 for each in submits for job in each.jobs.values()})
    notes = {
        name: f"longest without an answer: p50 {sorted(found)[len(found) // 2]:.1f} s, worst {max(found):.1f} s"
        for name, found in silences.items()
    }
    rows = [row("chaos", name, len(silences[name]), broken[name], notes[name]) for name in faults if name in silences]
    return [*rows, *check_load("chaos", here, load)]


def _answered(here: Installation, submits: list[Submits], more: int) -> None:
    wanted = [len(each.answers) + more for each in submits]
    here.until(
        lambda: all(len(each.answers) >= count for each, count in zip(submits, wanted, strict=True)),
        "both gateways answer",
        within_s=ANSWERED_S,
        look_s=0.05,
    )


@contextmanager
def world() -> Iterator[tuple[hosts.Hosts | None, tuple[Place, ...]]]:
    """Hosts for the servers, and this process on the one of everything else; (None, …) where there can be none."""
    if unfit := hosts.unfit():
        print(f"no cables are cut: {unfit}", flush=True)
        yield None, (Place(),) * SERVERS
        return
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    with hosts.Hosts(*(name_of(number) for number in range(SERVERS + 1))) as played:
        with Path(f"/run/netns/{played['control'].name}").open() as namespace:
            os.setns(namespace.fileno(), os.CLONE_NEWNET)
        try:
            own = [played[name_of(number)] for number in range(1, SERVERS + 1)]
            yield played, tuple(Place(host.address, ("ip", "netns", "exec", host.name)) for host in own)
        finally:
            os.setns(home, os.CLONE_NEWNET)
            os.close(home)


def write(rows: str, ending: str) -> None:
    """Put the table into docs/reference/robustness.md, with the day and the version that it was made with."""
    head, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin and end, f"{PAGE.name} has no {BEGIN}"
    asked = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    made = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, commit {commit or 'unknown'}: {ending}."
    PAGE.write_text(f"{head}{BEGIN}\n{made}\n\n{rows}\n{END}{tail}")


def main() -> int:
    """Play the rounds, and print what held."""
    options = _options()
    base = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.directory))
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    began = time.monotonic()
    print(f"== chaos: {options.rounds} rounds, seed {seed}, in {base}", flush=True)
    with world() as (played, places), Installation(base, nodes=3, places=places) as here:
        rows = play(here, Chaos(here, played, random.Random(seed)), options.rounds, options.only or [])
    failures = sum(each.failures for each in rows)
    ending = f"{options.rounds} rounds, {failures} failures, seed {seed}, {time.monotonic() - began:.0f} s"
    print(f"{table(rows)}\n\n{ending}; data in {base}")
    if options.write:
        write(table(rows), ending)
    if not failures and not options.keep:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=18, help="how many faults")
    parser.add_argument("--seed", type=int, help="of everything that is drawn (default: a new one, which is printed)")
    parser.add_argument("--only", nargs="+", help="faults whose name contains one of these words")
    parser.add_argument("--write", action="store_true", help="put the table into docs/reference/robustness.md")
    parser.add_argument("--keep", action="store_true", help="keep the data although nothing failed")
    parser.add_argument("--directory", default=None, help="where the data directory is made")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
