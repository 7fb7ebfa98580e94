"""`python -m fairlead` is the `fairlead` command."""

import sys

from fairlead.main import main

if __name__ == "__main__":
    sys.exit(main())
