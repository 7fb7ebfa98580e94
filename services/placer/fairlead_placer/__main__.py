"""`python -m fairlead_placer`."""

from fairlead_bus.main import run
from fairlead_placer.service import build

if __name__ == "__main__":
    run("placer", build)
