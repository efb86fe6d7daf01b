"""Where things lie and how long a test waits, for tests of any depth."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SCENARIOS = ROOT / "scenarios"
GOLDEN = TESTS / "golden"
SHARED_DATA = ROOT.parent / "shared" / "data"  # real data sets, where somebody has put them

HANG = 600.0  # seconds: a child that has not answered by then never will; no test is about time
