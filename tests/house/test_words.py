"""One concept, one word: words that the field does not use stay out of the project's texts and names."""

import re

import pytest

from places import ROOT

FOLDERS = ("agents", "analysis", "cascade_sim", "models", "docs", "scenarios", "tests")
ENDINGS = (".py", ".md", ".yaml", ".html", ".js", ".css")

# What is not written, and what is in its place.
BANNED = {
    r"\bknobs?\b": "parameter",
    r"\bnot told apart\b": "not significantly different",
    r"\b(with|under) the same luck\b": "with common random numbers",
    r"\bculprits?\b|\banswered_by\b|\bdumped_by\b": "ablation, served_by_stage, logged_scores_from",
    r"\bclicks_under_way\b": "pending_clicks",
    r"\bgiven_away\b|\bfree_clicks\b": "unbilled_revenue, unbilled_clicks",
    r"\bran_dry\b|\bdry_hour\b|\blargest_gap\b": "budget_exhausted, exhaustion_hour, max_pacing_error",
    r"\bspend_of_budget\b|\bmedian_use\b": "budget_utilisation, median_utilisation",
    r"\bslots_filled\b|\bcpc_error_floor\b": "fill_rate, cpc_error_irreducible",
    r"\bpayment_error\b": "payment_error_vs_oracle",
    r"(?<!planted )\bluck\b": "draw, noise, training_seed",
    r"\bheld against\b": "compared with",
    r"\bcould be chance\b|\bmay as well be none\b": "not significant",
    r"\bbeyond chance\b|\bby more than chance\b": "significantly",
    r"\bfalse alarms?\b": "false positive",
    r"\bdrawn worlds?\b": "synthetic world",
    r"\bhidden truth\b|\ball-knowing\b": "ground truth, oracle",
    r"\bendless money\b": "unlimited budgets",
    r"\ba whole number\b": "an integer",
    r"\bROOMS\b|\bheed\b": "COMMAND_GROUPS, check_interrupt",
    r"\bYardstick\b|\bCrowd\b|\bOnALine\b|\bLoggedStore\b": (
        "ReferenceSets, BidderPopulation, LinearlyCalibrated, LogStore"
    ),
    r"\btoday's (value|reserve)|\[\"(today|then)\"\]|\btoday: \{\}|_then\"": (
        "current, variant; an arm: production"
    ),
    r"\bworld\.logged\b|\bimported market|\bevidence level\b|\bis_market\b|\bMARKET_FILE\b": (
        "world.replay, imported log, log completeness, is_log_store"
    ),
    r"\bWelfare vs oracle\b|\bclicked lift\b|[\"']pairing[\"']|\.pairing\(": (
        "Welfare efficiency, realised lift, variance_reduction"
    ),
    r"\bphases\.bootstrap\b|\bbootstrap: ?\d|\[bootstrap\b|[\"']bootstrap[\"']": "cold_start",
    r"\bsmallest_seen\b|\bworth_of_pairing\b": "minimum_detectable_effect, variance_reduction",
    r"\b(MOST|LARGEST|LEAST|FEWEST)_[A-Z]": "MAX_, MIN_",
    r"\b(own_log|ask_a_log|richer_world|learned_bids|own_(model|users)(?=\.md))\b": "replay_log, …",
    r"--(fresh|uneven)\b": "--traffic-sample, --allow-unequal-grids",
    r"\bcommands[./]questions\b|\btest_rooms\b": "commands.analysis, test_packages",
    r"\bto_keep\b|\bslot\.harm\b": "critical_bid, externality",
    r"\b(own_code|OWN_CODE)\b": "user_code",
    r"\bclass(es)? of (one's|your) own\b": "custom class",
    r"\bheld again\b|\bbeaten by none\b": "re-run, Pareto-optimal",
    r"\bcannot be told apart\b|\btold from\b": "indistinguishable, distinguished from",
    r"\bendless\b(?! address)|\bnobody reacts\b": "unlimited, advertisers do not react",
    r"\blikeness\b|\blays? down\b|\bLay down\b": "realism, create",
    r"\bof late\b(?! (requests|clicks|answers|ones))|\bwho (came|comes) when\b": "recently, arrival times",
    r"\bbidding import .*\bMoment\b": "MarketTime, now",
    r"\bopposed_to\b|\bopposition\b|\bworld\.(ids|seasons)\b|\bchurn\.(share|life)\b": (
        "anti_correlated_group, id_effects, seasonality, available_share, mean_lifetime_days"
    ),
    r"\btraining\.(every|history|settle)\b|\bspec\.settle\b": "interval, window, burn_in",
    r"--jitter\b|\boff_policy\.jitter\b": "estimand",
    r"\bfitted\.response:|\bFittedResponse\b|\bfitted response\b": "click_model, FittedClickModel",
    r"\bnot_captured\b|[\"']yardstick[\"']|[\"']told_apart[\"']": "gaps, within_log, compared",
    r"[\"'](alike|nearly|unlike)[\"']": "equivalent, inconclusive, different",
    r"\b(pages|prices|winners)_as_logged\b|_that_cannot_be_told\b": "page_match_rate, pages_matched",
    r"\bonly_it\b|\bis_decided\b|_vs_click_model\b": "only_this_rule, is_identified, …_vs_imputation",
    r"[\"'](descent|drifts|ran_out)[\"']:": "residual_improvement, drifting, exhausted",
    r"\bfalse_alarms\b|\bcries wolf\b": "false_positive_rate",
    r"\bcomes? out as logged\b": "match the log",
}
# The same of what users and readers of the code read; tests may name their cases as they like.
BANNED_OUTSIDE_TESTS = {
    r"(?i)\b(no|some|any|every)body\b|\bwhoever\b": "the actor: the caller, an advertiser, no request, …",
    r"(?i)\bstands?\b(?! (in )?for\b| still\b)|\bstood\b": "is, are, is listed",
}
ALLOWED = {
    "tests/house/test_words.py": "names the words",
    "cascade_sim/commands/renamed.py": "maps options of before",
    "tests/drills/same_results.py": "maps the keys of older results",
    "cascade_sim/scenario/renamed.py": "names earlier keys",
    "cascade_sim/storage/renamed.py": "names earlier keys",
    "tests/storage/test_folder.py": "gives earlier keys",
    "tests/scenario/test_renamed.py": "gives earlier keys",
}


def parts(pattern: str) -> list[str]:
    """Plain words of which a text has one where the pattern matches in it: to look for them takes no time."""
    return re.findall(r"\w{3,}", re.sub(r"\\.|.\?", " ", pattern))


PARTS = {word: parts(word) for word in BANNED}


def offenders(text: str, *, is_test: bool = False) -> list[str]:
    """Line and word of each banned word, with what is in its place."""
    found, lines = [], text.splitlines()
    banned = {word: BANNED[word] for word in BANNED if any(part in text for part in PARTS[word])}
    for word, instead in (banned | ({} if is_test else BANNED_OUTSIDE_TESTS)).items():
        for number, line in enumerate(lines, 1):
            if match := re.search(word, line):
                found.append(f"{number}: {match[0]!r} -> {instead}")
    return found


def texts() -> list[str]:
    """Files that are read, by their paths from the root."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    inside = (path.relative_to(ROOT) for path in paths if path.suffix in ENDINGS)
    return ["README.md", "CONTRIBUTING.md", *(str(path) for path in inside if "made" not in path.parts)]


def test_texts_and_names_use_the_words_of_the_field():
    found = {
        name: offenders((ROOT / name).read_text(encoding="utf-8"), is_test=name.startswith("tests"))
        for name in texts()
    }
    assert {name: bad for name, bad in found.items() if bad and name not in ALLOWED} == {}
    assert all(found[name] for name in ALLOWED)  # no exception outlives its reason


@pytest.mark.parametrize(
    "planted",
    [
        *("turn the knob", "ltr is not told apart from it", "MOST_ROWS = 4", "with the same luck"),
        *("Nobody bids", "it stands in the table", "world.ids.user=0.5"),
    ],
)
def test_a_word_that_is_planted_is_found(planted):
    assert offenders(f"a line before\n{planted}\n") and not offenders("set the parameter\n")
