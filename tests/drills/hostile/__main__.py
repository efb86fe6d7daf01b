"""`python -m tests.drills.hostile`, from the folder of the project. See tool.py."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch
TESTS = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TESTS.parent), str(TESTS)]

from drills.hostile.tool import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
