"""Classes are checked from Python: findings that can be read, counted and shown."""

import pytest
from torch import nn

from answers.told import refused, tells
from cascade_sim.agents.bidding import Bidder
from cascade_sim.checks import model as model_checks
from cascade_sim.checks.bidder import check_bidder
from cascade_sim.checks.contract import Finding, Findings, run_checks
from cascade_sim.checks.model import check_model
from cascade_sim.foundation.errors import UserError


class Net(nn.Module):
    def __init__(self, request_width, ad_width, pair_width, dims=4):
        super().__init__()
        self.u, self.a = nn.Linear(request_width, dims), nn.Linear(ad_width, dims)

    def forward(self, request, ads, pair):
        return (self.u(request).unsqueeze(1) * self.a(ads)).sum(-1)


class Broken(Net):
    def forward(self, request, ads, pair):
        return request.nothing


class Half(Bidder):
    def bids(self, now):
        return 0.5 * self.payable


class Peeking(Bidder):
    def observe(self, feedback, now):
        from cascade_sim.foundation.errors import UserError  # noqa: F401


@pytest.fixture
def serving_only(monkeypatch):
    monkeypatch.setattr(model_checks, "TRAINING_CHECKS", ())


def test_a_model_class_is_checked(serving_only):
    import torch

    threads = torch.get_num_threads()
    findings = check_model(Net, options={"dims": 3}, features=("user", "quality", "G1"))
    assert findings.ok and "dims=3" in findings[1].text
    assert torch.get_num_threads() == threads


def test_what_is_wrong_with_a_model_is_found_and_not_raised(serving_only):
    findings = check_model(Broken)
    assert not findings.ok and findings.n_failed == 1
    by_name = {finding.check: finding for finding in findings}
    assert "test_contract.py:26: AttributeError" in by_name["output"].text
    finding = check_model(Half)[0]
    assert finding.status == "FAILED" and tells(finding.text, "Half", "torch.nn.Module")


def test_a_bidder_class_is_checked():
    heard = []
    findings = check_bidder(Half, on_finding=heard.append)
    assert findings.ok and heard == findings
    finding = check_bidder(Half, options={"x": 1})[1]
    assert finding.status == "FAILED" and tells(finding.text, "'x'")
    sees = next(finding for finding in check_bidder(Peeking) if finding.check == "sees")
    assert (sees.status, "cascade_sim.foundation.errors" in sees.text) == ("FAILED", True)


@pytest.mark.parametrize("check", [check_model, check_bidder])
def test_what_is_no_class_is_refused(check):
    with refused("class", 3):
        check(3)
    with pytest.raises(UserError, match="no file 'nowhere.py'"):
        check("nowhere.py:Mine")


def test_a_key_that_no_model_has_is_refused():
    with pytest.raises(UserError, match="check_model: recipe: "):
        check_model(Net, recipe="lgloss")


def test_findings_are_shown_as_lines_a_frame_and_a_table():
    findings = Findings([Finding("bids", "ok", "fine"), Finding("speed", "note", "a < b")])
    assert tells(str(findings).splitlines()[-1], "2 checks", "1 with")
    assert list(findings.frame().columns) == ["check", "status", "text"] and len(findings.frame()) == 2
    assert "<td>a &lt; b</td>" in findings._repr_html_()
    findings.append(Finding("state", "FAILED", "lost"))
    assert (findings.ok, findings.verdict()) == (False, "1 of 3 checks FAILED")


def test_who_failed_is_blamed_before_who_was_skipped():
    class Nothing:
        kind = "nothing"

    def fails(subject):
        raise ValueError("no")

    checks = [("a", fails, ()), ("b", fails, ("a",)), ("c", fails, ("a", "b")), ("d", fails, ("b",))]
    texts = [finding.text for finding in run_checks(checks, Nothing())]
    assert [tells(text, f"'{who}'") for text, who in zip(texts[1:], "aab", strict=True)] == [True] * 3
