"""`python -m cascade_sim`."""

import sys

from cascade_sim.cli import main

sys.exit(main())
