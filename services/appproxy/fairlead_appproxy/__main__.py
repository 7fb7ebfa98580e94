"""`python -m fairlead_appproxy`. Settings: see `fairlead_bus.main` and `service.ProxySettings`."""

from fairlead_appproxy.service import build
from fairlead_bus.main import run

if __name__ == "__main__":
    run("appproxy", build)
