"""The pytest plugin, through runs of pytest of its own; the example file of scenarios/ among them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from places import SCENARIOS
from worlds.guarded_market import measure_plain, write_plain

pytest_plugins = ["pytester"]
EXAMPLE = SCENARIOS / "example_test_revenue.py"


@pytest.fixture(scope="module", autouse=True)
def everything_is_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A run of pytest inside this one forgets what it imports; numpy cannot be imported twice."""
    measure_plain(tmp_path_factory.mktemp("warm"))


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    """pytest in this process, without plugins that look through all that torch has loaded."""
    left_out = ("unraisableexception", "hypothesispytest", "cacheprovider")
    return suite.runpytest_inprocess(*(f"-pno:{name}" for name in left_out), *options)


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """A user's project: the example as its test, and a scenario without training under the name it uses."""
    write_plain(pytester.path, "scenario.yaml")
    (pytester.path / "test_revenue.py").write_text(EXAMPLE.read_text())
    return pytester


def test_the_example_writes_its_baseline_passes_and_fails_once_the_auction_earns_something_else(suite):
    first = run(suite)
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines(["*revenue.json does not exist; run pytest --update-revenue-baseline once*"])
    first.stdout.no_fnmatch_line("*another exception occurred*")  # said once
    run(suite, "--update-revenue-baseline").stdout.fnmatch_lines(["revenue baseline written: *"])
    run(suite).assert_outcomes(passed=1)

    scenario = suite.path / "scenario.yaml"
    scenario.write_text(scenario.read_text() + "auction: {reserve_cpc: 0.9}\n")
    moved = run(suite)
    moved.assert_outcomes(failed=1)
    moved.stdout.fnmatch_lines(["*production*cpc*FAILED", "*FAILED: * metrics moved; the most: *"])


@pytest.mark.drill
def test_what_was_written_is_said_as_well_where_other_processes_run_the_tests(suite):
    pytest.importorskip("xdist")
    done = suite.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider", "--update-revenue-baseline")
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["revenue baseline written: *revenue.json"])


def no_run(*given, **options):
    raise AssertionError("the scenario was run")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "production:",
            "prodution:",
            "unknown arm 'production'; did you mean 'prodution'? *leave it out with --arm*",
        ),
        ("users: 150", "users: 151", "world.users*"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_run(suite, monkeypatch, old, new, words):
    run(suite, "--update-revenue-baseline").stdout.fnmatch_lines(["revenue baseline written: *"])
    scenario = suite.path / "scenario.yaml"
    text = scenario.read_text()
    assert old in text
    scenario.write_text(text.replace(old, new))
    monkeypatch.setattr("cascade_sim.regression.serving.measure_scenario", no_run)
    refused = run(suite)
    refused.assert_outcomes(failed=1)
    refused.stdout.fnmatch_lines([f"*auction_revenue: *{words}*"])
    refused.stdout.no_fnmatch_line("*was run*")


def test_a_baseline_of_an_arm_that_there_is_not_is_refused_before_anything_is_run(suite, monkeypatch):
    test = suite.path / "test_revenue.py"
    test.write_text(test.read_text().replace("auction_revenue()", 'auction_revenue(arms="prodution")'))
    monkeypatch.setattr("cascade_sim.regression.serving.measure_scenario", no_run)
    refused = run(suite, "--update-revenue-baseline")
    refused.assert_outcomes(failed=1)
    refused.stdout.fnmatch_lines(["*--arm: unknown arm 'prodution'; did you mean 'production'?*"])


def test_a_mark_without_the_fixture_is_refused_because_it_would_guard_nothing(pytester):
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.auction_revenue(scenario="a.yaml", against="b.json")
        def test_revenue():
            pass
        """
    )
    result = run(pytester)
    result.stderr.fnmatch_lines(["*test_revenue is marked auction_revenue but does not ask for the fixture*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_fixture_that_is_never_called_fails_its_test(pytester):
    pytester.makepyfile("def test_revenue(auction_revenue):\n    pass\n")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*auction_revenue was never called, so nothing was checked*"])


@pytest.mark.parametrize(
    "call, words",
    [
        ("auction_revenue()", "scenario is None; expected a path"),
        ("auction_revenue(scenari='x', against='y')", "unknown keyword 'scenari'; did you mean 'scenario'?"),
        (
            "auction_revenue(scenario='x', against='y', traffic_sample=-1)",
            "traffic_sample is -1; expected an integer",
        ),
        ("auction_revenue(scenario='x', against='y', metrics=[1])", "expected a text or a list of them"),
    ],
)
def test_a_mistake_in_the_call_is_explained(pytester, call, words):
    pytester.makepyfile(f"def test_revenue(auction_revenue):\n    {call}\n")
    run(pytester).stdout.fnmatch_lines([f"*{words.replace('[', '[[]')}*"])


def test_other_tests_run_as_without_the_plugin_and_nothing_heavy_is_imported(tmp_path):
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_nothing_is_loaded():\n"
        "    assert 'cascade_sim.pytest_plugin' in sys.modules\n"
        "    assert not {'numpy', 'torch', 'pandas', 'scipy'} & set(sys.modules)\n"
    )
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout
    assert "1 passed" in found.stdout
