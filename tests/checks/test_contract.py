"""Classes are checked from Python: findings that can be read, counted and shown."""

import pytest
from torch import nn

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
    assert "test_contract.py:25: AttributeError" in by_name["output"].text
    assert check_model(Half)[0].text.endswith("is not a torch.nn.Module class")


def test_a_bidder_class_is_checked():
    heard = []
    findings = check_bidder(Half, on_finding=heard.append)
    assert findings.ok and heard == findings
    assert "unexpected keyword argument 'x'" in check_bidder(Half, options={"x": 1})[1].text
    sees = next(finding for finding in check_bidder(Peeking) if finding.check == "sees")
    assert (sees.status, "cascade_sim.foundation.errors" in sees.text) == ("FAILED", True)


@pytest.mark.parametrize("check", [check_model, check_bidder])
def test_what_is_no_class_is_refused(check):
    with pytest.raises(UserError, match="expected a class or the kind of one, found 3"):
        check(3)
    with pytest.raises(UserError, match="no file 'nowhere.py'"):
        check("nowhere.py:Mine")


def test_a_key_that_no_model_has_is_refused():
    with pytest.raises(UserError, match="check_model: recipe: "):
        check_model(Net, recipe="lgloss")


def test_findings_are_shown_as_lines_a_frame_and_a_table():
    findings = Findings([Finding("bids", "ok", "fine"), Finding("speed", "note", "a < b")])
    assert str(findings).splitlines()[-1] == "all 2 checks ok, 1 with a note"
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
    assert texts[1:] == ["needs 'a' to be ok", "needs 'a' to be ok", "needs 'b' to be ok"]
