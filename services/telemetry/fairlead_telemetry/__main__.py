"""`python -m fairlead_telemetry`: run the service."""

from fairlead_bus.main import run
from fairlead_telemetry.service import build

if __name__ == "__main__":
    run("telemetry", build)
