"""See rows.py."""

import sys

from bench.placing.rows import main

sys.exit(main())
