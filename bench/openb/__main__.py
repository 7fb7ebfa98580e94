"""See playing.py."""

import sys

from bench.openb.playing import main

sys.exit(main())
