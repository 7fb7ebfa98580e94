"""See checking.py."""

import sys

from bench.vectors.checking import main

sys.exit(main())
