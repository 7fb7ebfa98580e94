"""`python -m fairlead_storage`"""

from fairlead_bus.main import run
from fairlead_storage.service import build

if __name__ == "__main__":
    run("storage", build)
