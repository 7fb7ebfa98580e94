"""`python -m fairlead_replay.sim --seeds 1..200 [--commands N]`: see `many.py`."""

import sys

from fairlead_replay.sim.many import main

if __name__ == "__main__":
    sys.exit(main())
