"""`python -m fairlead_gateway`. Settings: see `service.Settings` and `fairlead_bus.main`."""

from fairlead_bus.main import run
from fairlead_gateway.service import build

if __name__ == "__main__":
    run("gateway", build)
