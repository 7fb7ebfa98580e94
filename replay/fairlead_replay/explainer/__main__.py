"""`python -m fairlead_replay.explainer`. Settings: see `fairlead_bus.main`."""

from fairlead_bus.main import run
from fairlead_replay.explainer.service import build

if __name__ == "__main__":
    run("explainer", build)
