"""`python -m fairlead_replay.archive`: the archiver. Settings: see `follow.build` and `fairlead_bus.main`."""

from fairlead_bus.main import run
from fairlead_replay.archive.archiver import build

if __name__ == "__main__":
    run("archiver", build)
