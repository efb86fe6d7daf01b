"""`audit-logs`: the answer on the terminal and in files, the exit code, and what is raised."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from answers.told import refused, tells
from cascade_sim.cli import main
from cascade_sim.logs.store.store import open_store
from worlds.logged_auctions import cents, drawn, paged, stored

GSP = {"pricing": "gsp", "squashing": 1.0}


@pytest.fixture(scope="module")
def markets(tmp_path_factory):
    """A log that follows its rule, one that does not, and one that declares none."""
    folder = tmp_path_factory.mktemp("markets")
    log = drawn(41, requests=400)
    stored(folder / "good", paged(log), GSP)
    stored(folder / "bad", paged(log, reserve_cpc=np.where(log.placement == 0, 0.7, 0.0)), GSP)
    stored(folder / "free", paged(log, squashing=0.5, rounded=cents("up")))
    return folder


def test_a_log_that_follows_its_rule_exits_with_0(markets, capsys):
    assert main(["audit-logs", str(markets / "good")]) == 0
    out = capsys.readouterr().out
    assert tells(out.split("\n")[1], "100 %", "declared rule") and out.split("\n")[1].startswith("100 % ")
    assert tells(out, "Every page")


def headline(capsys):
    return " ".join(capsys.readouterr().out.split("\n\n")[0].split("\n")[1:])


def test_the_headline_is_the_share_of_whole_pages(tmp_path, capsys):
    """Winners may all be right where hardly a page is."""
    log = drawn(43, requests=300)
    made = paged(log)
    price = made.price.copy()
    price[10:][made.slot[10:] == 0] += 7
    stored(tmp_path / "m", replace(made, price=price), GSP)
    assert main(["audit-logs", str(tmp_path / "m")]) == 1
    told = headline(capsys)
    assert told.startswith("3.3 % ") and tells(told, "declared rule", "100 %")


@pytest.mark.parametrize("slots, words", [(1, "Nothing"), (3, "the winners cannot")])
def test_of_winners_alone_the_headline_says_what_cannot_be_told(slots, words, tmp_path, capsys):
    made = paged(drawn(44, requests=60, slots=slots))
    stored(tmp_path / "m", made, GSP, is_winners_only=True)
    code = main(["audit-logs", str(tmp_path / "m")])
    told = headline(capsys)
    assert words in told
    assert code == (1 if slots == 1 else 0)
    assert tells(told, "only shown ads") == (slots == 1)


def test_without_bids_nothing_can_be_told(tmp_path, capsys):
    made = paged(drawn(45, requests=60))
    stored(tmp_path / "m", replace(made, bid=np.full(made.bid.shape, np.nan)), GSP)
    assert main(["audit-logs", str(tmp_path / "m"), "--out", str(tmp_path / "audit")]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert tells(told, "Nothing can be", "no bids")
    assert "%" not in told and tells((tmp_path / "audit" / "audit.html").read_text(), "Nothing can be")


def test_python_has_the_same_tables_and_files(markets, tmp_path):
    from cascade_sim import audit_logs

    found = audit_logs(markets / "bad", out=tmp_path / "audit")
    assert found.frame()["reason"].tolist() == ["hidden reserve"]
    assert found.tally()["what"].tolist() == ["pages", "winners", "prices"]
    assert {path.name for path in found.files} == {"audit.json", "audit.csv", "audit.html"}
    assert "Audit of tuesday" in found._repr_html_() and found.rules().empty
    assert audit_logs(markets / "free", infer=True).rules()["pages"][0] == 1.0
    with refused("nowhere"):
        audit_logs("nowhere")


def test_one_that_does_not_exits_with_1_and_says_why(markets, tmp_path, capsys):
    assert main(["audit-logs", str(markets / "bad"), "--out", str(tmp_path / "audit")]) == 1
    out = capsys.readouterr().out
    answer = json.loads((tmp_path / "audit" / "audit.json").read_text())
    (row,) = answer["reasons"]
    assert row["key"] == "hidden_reserve" and row["value"] == "0.7" and "place-0" in row["where"]
    assert "hidden reserve: 0.7; placement place-0" in out and f"{row['requests']}" in out
    assert row["examples"][0] in out
    lines = (tmp_path / "audit" / "audit.csv").read_text().splitlines()
    assert lines[0].startswith("reason,requests,share") and lines[1].startswith(
        f"hidden reserve,{row['requests']}"
    )


class Words(HTMLParser):
    """What a page says, and what it loads."""

    def __init__(self):
        super().__init__()
        self.text, self.loaded = [], []

    def handle_data(self, data):
        self.text.append(data)

    def handle_starttag(self, tag, attrs):
        self.loaded += [
            v for k, v in attrs if k in ("src", "href") and v and not v.startswith(("#", "data:"))
        ]


def test_the_page_has_the_answer_first_and_loads_nothing(markets, tmp_path):
    main(["audit-logs", str(markets / "free"), "--out", str(tmp_path)])
    page = Words()
    page.feed((tmp_path / "audit.html").read_text())
    text = " ".join(" ".join(page.text).split())
    answer = "100 % of the pages"
    assert page.loaded == []
    assert 0 < text.index(answer) < text.rindex("Rule identification") < text.rindex("Its parameters")
    assert tells(text, "squashing 0.5", 0.01)


def test_names_of_the_log_cannot_bring_markup_onto_the_page(tmp_path):
    from cascade_sim.analysis.report.sections.audit import audit_page
    from cascade_sim.logs.audit.study import audit

    log = drawn(42, requests=60)
    store = stored(tmp_path, paged(log, pricing="first"), GSP, name="<script>alert(1)</script>")
    page = audit_page(audit(store).answer)
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page


def test_json_is_the_whole_output(markets, capsys):
    assert main(["audit-logs", str(markets / "free"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rule"]["squashing"] == 0.5 and answer["inference"]["is_identified"]


def test_a_result_gives_tables(markets):
    from cascade_sim.logs.audit.study import audit

    found = audit(markets / "bad", infer=True)
    assert found.tally()["as_logged"].tolist() == [400, *found.tally()["of"][1:]]
    assert found.frame().empty
    assert found.rules()["rule"][0].startswith("gsp")
    assert audit(open_store(markets / "bad")).frame()["reason"].tolist() == ["hidden reserve"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"pricing": "gps"}, "'gps' 'gsp'?"),
        (
            {"pricing": "vcg", "squashing": 0.5},
            "vcg 0.5 1",
        ),
        ({"pricing": "gsp", "rounding": 1e-9}, "rounding micro-unit"),
        ({"pricing": "gsp", "rounding": 0.01, "rounding_how": "upward"}, "'upward'"),
    ],
)
def test_a_rule_that_is_none_is_refused(rule, message, tmp_path, capsys):
    stored(tmp_path, paged(drawn(43, requests=5)), rule)
    assert main(["audit-logs", str(tmp_path)]) == 2
    assert tells(capsys.readouterr().err, *message.split())


def test_a_rule_with_a_reserve_below_0_is_refused_when_the_market_is_opened(tmp_path):
    with refused("rule", 0):
        stored(tmp_path, paged(drawn(43, requests=5)), {"pricing": "gsp", "reserve_cpc": -1})


def test_what_is_no_market_is_refused(tmp_path, capsys):
    assert main(["audit-logs", str(tmp_path)]) == 2
    assert tells(capsys.readouterr().err, tmp_path, "log")


def test_budgets_that_were_not_in_force_are_told(tmp_path):
    from cascade_sim import audit_logs, import_logs
    from worlds.small_log import OWNERS, small_log

    log = small_log(80)
    log.mapping += "budgets: {files: budgets.csv, columns: {advertiser: account, budget: euros}}\n"
    mapping = log.write(tmp_path / "log")
    for name, euros in (("small", 0.01), ("large", 1000)):
        rows = "".join(f"owner {i},{euros}\n" for i in range(OWNERS))
        (tmp_path / "log" / "budgets.csv").write_text("account,euros\n" + rows)
        import_logs(mapping, tmp_path / name)
    small, large = (audit_logs(tmp_path / name) for name in ("small", "large"))
    wrong = len(log.requests) - small.answer["tally"]["pages_matched"]
    assert wrong > 0
    words = f"{wrong} of the {wrong} pages that do not match the log would if no advertiser counted as out"
    assert any(note.startswith(words) for note in small.answer["notes"])
    assert large.frame().empty and large.answer["notes"] == []
