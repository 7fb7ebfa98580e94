"""`python -m fairlead_replay.past`. Settings: see `service.PastSettings` and `fairlead_bus.main`."""

from fairlead_bus.main import run
from fairlead_replay.past.service import build

if __name__ == "__main__":
    run("past", build)
