"""See pages.py."""

import sys

from bench.fairness.pages import main

sys.exit(main())
