"""Names that would steer a terminal or turn a line around are written out wherever they are printed."""

import json
import re
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO

import pytest

from cascade_sim.analysis.report.tables import Cell, Row, Table
from cascade_sim.analysis.report.terminal import table_text
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from cascade_sim.foundation.terminal import echo, in_line, joined, shown
from places import SCENARIOS
from worlds.small_log import small_log

EVIL = "\x1b[2J\x07\u202e[bold]<script>\u2028\x9b1m"
STEERING = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"
)
QUICK = SCENARIOS / "quick.yaml"


class Screen(StringIO):
    """A terminal that remembers what it got."""

    def isatty(self):
        return True


@contextmanager
def screen():
    """Standard output is a terminal: what is printed to it is not stripped of anything."""
    made, errors = Screen(), StringIO()
    with redirect_stdout(made), redirect_stderr(errors):
        yield lambda: made.getvalue() + errors.getvalue()


@pytest.fixture(scope="module")
def log():
    """Ads, advertisers, users, placements and requests of such names."""
    log = small_log(60)
    for rows, columns in ((log.requests, ("id", "uid", "where")), (log.bids, ("id", "creative", "account"))):
        for row in rows:
            row |= {column: EVIL + row[column] for column in columns}
    for row in log.shown:
        row |= {column: EVIL + row[column] for column in ("id", "creative")}
    return log


@pytest.fixture(scope="module")
def market(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evil")
    assert main(["import-logs", str(log.write(folder / "log")), "--out", str(folder / "market")]) == 0
    return folder / "market"


def styles(text):
    """Without the colours of our own tables, in which no name has a part."""
    return re.sub(r"\x1b\[(?:0|1|2|3|31|32)(?:;[0-9]+)*m", "", text)


def printed(*words):
    """The exit code of a command and what it prints; nothing in it steers."""
    with screen() as got:
        code = main([str(word) for word in words])
    text = got()
    assert STEERING.findall(styles(text)) == [], text
    return code, text


@pytest.mark.parametrize(
    "words",
    [
        ("trace", "MARKET", "--request", 0),
        ("trace", "MARKET", "--request", 0, "--json"),
        ("trace", "MARKET", "--request", 0, "--ad", f"{EVIL}none"),
        ("trace", "MARKET", "--request", f"{EVIL}none"),
        ("trace", "MARKET", "--request", 0, "--arm", EVIL),
        ("landscape", "MARKET", "--ad", 0, "--quiet"),
        ("landscape", "MARKET", "--ad", EVIL),
        ("critical-bids", "MARKET", "--quiet"),
        ("audit-logs", "MARKET"),
        ("audit-logs", "MARKET", "--json"),
        ("whatif", "MARKET", "--set", "auction.reserve_cpc=0.4", "--out", "OUT"),
        ("whatif", "MARKET", "--set", f"auction.{EVIL}=0.4", "--quiet"),
        ("compare", EVIL, "MARKET"),
        ("realism", "MARKET", EVIL),
        ("validate", QUICK, "--set", f"{EVIL}=1"),
        ("validate", f"{EVIL}.yaml"),
        ("validate", QUICK, f"--{EVIL}"),
        (EVIL,),
    ],
)  # fmt: skip
def test_no_command_prints_what_steers(market, tmp_path, words):
    known = {"MARKET": market, "OUT": tmp_path / "out"}
    code, text = printed(*(known.get(word, word) for word in words))
    is_name_given = any(EVIL in str(word) for word in words)
    assert code == (2 if is_name_given else code) and code in (0, 1, 2)
    if is_name_given or words[0] == "trace":
        assert "\\u202e" in text and "[bold]" in text  # written out, and no markup


def test_an_ad_is_found_by_its_own_name_and_has_it_in_json(market):
    code, text = printed("trace", market, "--request", 0, "--json")
    name = next(iter(json.loads(text)["names"]["ads"].values()))
    assert code == 0 and name.startswith(EVIL)  # data keep their bytes
    assert printed("trace", market, "--request", 0, "--ad", name)[0] == 0
    assert main(["landscape", str(market), "--ad", name, "--quiet"]) == 0


def test_what_is_wrong_with_a_log_is_said_without_its_signs(log, tmp_path):
    path = log.write(tmp_path / "log")
    bids = (path.parent / "bids.csv").read_text()
    (path.parent / "bids.csv").write_text(bids + f"{EVIL}r1,{EVIL}ad,{EVIL}owner,{EVIL},0.1\n")
    code, text = printed("import-logs", path, "--out", tmp_path / "market")
    assert code == 2 and "\\x1b[2J" in text


def test_a_scenario_with_such_keys_is_refused_without_them(tmp_path):
    file = tmp_path / f"{EVIL.replace('/', '')}.yaml"
    file.write_text(QUICK.read_text() + f"\n{json.dumps('[red]' + EVIL)}: 1\n")
    code, text = printed("validate", file)
    assert code == 2 and "[red]\\x1b[2J" in text


def test_pages_of_such_a_market_have_them_written_out(market, tmp_path):
    out = tmp_path / "audit"
    main(["audit-logs", str(market), "--infer", "--out", str(out)])
    page = (out / "audit.html").read_text()
    assert STEERING.findall(page.replace("\t", "")) == [] and "<script>" + "\\u2028" not in page


def test_a_table_takes_names_as_they_are_and_keeps_its_colours():
    rows = [Row(f"{EVIL}\nforged", [Cell("1", tone="up")])]
    text = table_text(Table(f"[red]{EVIL}", "[link=x]", ["[bold]"], rows), color=True)
    with screen() as got:
        echo(joined([EVIL, text]))
    assert "\x1b[32m" in text and "\\nforged" in text
    assert all(word in text for word in ("[red]", "[link=x]", "[bold]<script>"))
    assert STEERING.findall(styles(got())) == [] and "\x1b[32m" in got()


def test_colours_are_written_out_where_nobody_vouches_for_them():
    with screen() as got:
        echo("\x1b[31mred")
    assert got() == "\\x1b[31mred\n"
    assert shown(shown("\x1b")) == "\\x1b" and in_line("a\nb\t") == "a\\nb\\t"


def test_errors_are_harmless_before_anybody_prints_them():
    assert str(UserError(f"no ad {EVIL}\nsecond")).startswith("no ad \\x1b[2J\\x07\\u202e[bold]")
    assert str(UserError("two\nlines")) == "two\nlines"
