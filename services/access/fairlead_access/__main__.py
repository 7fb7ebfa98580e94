"""`python -m fairlead_access`"""

from fairlead_access.service import build
from fairlead_bus.main import run

if __name__ == "__main__":
    run("access", build)
