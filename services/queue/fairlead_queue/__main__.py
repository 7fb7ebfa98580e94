"""`python -m fairlead_queue`"""

from fairlead_bus.main import run
from fairlead_queue.service import build

if __name__ == "__main__":
    run("queue", build)
