"""A drill: bugs planted in the real source must be caught by the tests or the check that is named for them.

Alone, with its table: `pytest tests/drills/test_seeded_bugs.py -s`. `make drill` runs all drills.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from answers.told import refused
from drills.bug_drill import planted, table
from drills.seeded_bugs import BUGS, CHECK, Bug

pytestmark = [
    pytest.mark.drill,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the drill forks a process for each bug"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The whole drill, in a process that has not loaded the packages."""
    folder = tmp_path_factory.mktemp("drill")
    drill = Path(__file__).with_name("bug_drill.py")
    done = subprocess.run([sys.executable, str(drill), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    print("\n" + table(result))
    return result


def test_the_copy_without_a_bug_passes_all_of_them(found):
    for run in found["clean"]:
        assert not run["failed"] and set(run["codes"]) == {0}, run["text"]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(found, bug):
    run = found["bugs"][bug.name]
    # 1: tests failed, or the check did. Anything else (no such test, no such module) caught nothing.
    assert set(run["codes"]) <= {0, 1} and run["failed"], run["text"]
    assert {test for test in run["failed"] if not test.startswith(bug.caught_by)} == set()


def test_there_are_enough_bugs_of_all_kinds_and_some_are_caught_by_the_check_alone():
    assert len(BUGS) >= 20 and len({bug.name for bug in BUGS}) == len(BUGS)
    assert {bug.file.split("/")[0] for bug in BUGS} == {"cascade_sim", "agents", "analysis"}
    assert sum(bug.caught_by == (CHECK,) for bug in BUGS) >= 3


def test_a_bug_whose_line_has_moved_on_is_reported_and_not_skipped():
    gone = Bug("gone", "a.py", "price = 1", "price = 2", (CHECK,))
    with refused("gone", "0 times", kind=ValueError):
        planted("price = 3", gone)
    with refused("gone", "2 times", kind=ValueError):
        planted("price = 1; price = 1", gone)
    assert planted("price = 1", gone) == "price = 2"
