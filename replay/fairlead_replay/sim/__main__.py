"""`python -m fairlead_replay.sim --seeds 1..200 [--commands N]`: see `seeds.py`."""

import sys

from fairlead_replay.sim.seeds import main

if __name__ == "__main__":
    sys.exit(main())
