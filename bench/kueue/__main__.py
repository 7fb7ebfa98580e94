"""See load.py."""

import sys

from bench.kueue.load import main

sys.exit(main())
