"""`python -m fairlead_gateway.notify`. Settings: see `settings.NotifySettings` and `fairlead_bus.main`."""

from fairlead_bus.main import run
from fairlead_gateway.notify.service import NAME, build

if __name__ == "__main__":
    run(NAME, build)
