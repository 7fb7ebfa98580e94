"""`python -m fairlead_agent.hollow --nodes 500 --gpus 8`: plays nodes until a signal.

FAIRLEAD_NATS names the bus, FAIRLEAD_POOL the pool of all these nodes; the settings that settings.py reads apply to each
of them.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import fairlead_bus.plain_structlog  # noqa: F401 -- before the modules that import structlog

# isort: split
from fairlead_agent import settings
from fairlead_agent.devices.labels import rack_labels
from fairlead_agent.devices.profiles import profiles
from fairlead_agent.hollow.fleet import HollowFleet
from fairlead_agent.hollow.shapes import Shape, alike, of_profile, read_shapes
from fairlead_bus.environment_settings import token
from fairlead_bus.main import run
from fairlead_bus.port import Bus
from fairlead_schemas.units.ids import is_token


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line (or these words)."""
    parser = argparse.ArgumentParser(
        prog="python -m fairlead_agent.hollow", description="Play many nodes on the real bus."
    )
    parser.add_argument("--nodes", type=int, default=500, help="how many nodes (default 500)")
    parser.add_argument("--gpus", type=int, default=8, help="GPUs per node (default 8)")
    parser.add_argument(
        "--profile", choices=sorted(profiles()), help="the machine that all play; --gpus is then not used"
    )
    parser.add_argument(
        "--shapes",
        type=Path,
        help="node list, CSV: sn,cpu_milli,memory_mib,gpu,model; --nodes, --gpus and --profile are then not used",
    )
    parser.add_argument("--nodes-per-rack", type=int, default=4, help="0: no racks (default 4)")
    parser.add_argument("--racks-per-block", type=int, default=4, help="0: no blocks (default 4)")
    settings.add_arguments(parser)
    parser.add_argument("--speed", type=float, default=1.0, help="divides every run time (default 1)")
    parser.add_argument(
        "--sample-s", type=float, default=0.0, help="seconds between samples of a node; 0: none (default)"
    )
    parser.add_argument("--prefix", default="hollow", help="names are PREFIX-1 … (default hollow)")
    found = parser.parse_args(words)
    if (
        found.speed <= 0
        or found.sample_s < 0
        or found.nodes < 1
        or found.gpus < 0
        or not is_token(f"{found.prefix}-{found.nodes}")
    ):
        parser.error("expected a speed above 0, no negative --sample-s, at least one node, and a prefix of a-z 0-9 _ -")
    return found


def main() -> None:
    """Play until a signal."""
    args = arguments()

    async def build(bus: Bus) -> HollowFleet:
        return HollowFleet(bus, shapes(args, os.environ), speed=args.speed, sample_s=args.sample_s)

    run("hollow", build, on_node=True)


def shapes(args: argparse.Namespace, env: Mapping[str, str]) -> list[Shape]:
    """The nodes, with their racks and with what the admin says. Raises BadSetting."""
    pool = token(env, "FAIRLEAD_POOL")
    labels, taints = settings.admin_from_environment(settings.with_arguments(env, args))
    if args.shapes:
        found = read_shapes(args.shapes)
    elif args.profile:
        found = of_profile(args.nodes, args.profile, args.prefix)
    else:
        found = alike(args.nodes, args.gpus, args.prefix)
    return [
        shape._replace(
            pool=pool,
            labels={**rack_labels(number, args.nodes_per_rack, args.racks_per_block), **labels},
            taints=taints,
        )
        for number, shape in enumerate(found)
    ]


if __name__ == "__main__":
    main()
