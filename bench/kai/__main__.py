"""See scale.py."""

import sys

from bench.kai.scale import main

sys.exit(main())
