"""The model checker: a good model passes; each way of being wrong is caught by the check that names it."""

import json

import pytest

from answers.told import refused, tells
from cascade_sim.checks import model as check_model_training
from cascade_sim.checks.model import check_model
from cascade_sim.cli import main
from cascade_sim.models.nets import NETS
from cascade_sim.models.nets.towers import TwoTowers
from places import ROOT
from worlds.checked_files import not_ok, statuses, write_mine

# A model whose parts the cases below replace.
SOURCE = """
import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Mine(nn.Module):
    def __init__(self, request_width, ad_width, pair_width, dims=4{more_arguments}):
        super().__init__()
        self.u, self.a = nn.Linear(request_width, dims), nn.Linear(ad_width, dims)
        {more_parts}

    def forward(self, request, ads, pair):
        {before}
        logit = (self.u(request).unsqueeze(1) * self.a(ads)).sum(-1)
        {after}
        return logit

    {more_methods}
"""


def checked(kind: str, **spec: object) -> dict[str, tuple[str, str]]:
    return statuses(check_model(kind, **spec))


@pytest.fixture(autouse=True)
def timed_once(monkeypatch):
    """How quick it is is another test's business."""
    monkeypatch.setattr(check_model_training, "TIMED_FOR", 0.0)


@pytest.fixture
def serving_only(monkeypatch):
    monkeypatch.setattr(check_model_training, "TRAINING_CHECKS", ())


@pytest.mark.parametrize("recipe", ["logloss", "distill", "ltr"])
def test_a_sound_model_passes_every_check_under_every_recipe(tmp_path, recipe):
    by_check = checked(write_mine(tmp_path, SOURCE), recipe=recipe)
    assert not_ok(by_check) == {}
    assert list(by_check)[:3] == ["import", "constructor", "output"]
    assert tells(by_check["speed"][1], "towers")


@pytest.mark.parametrize("kind", NETS)
def test_the_built_in_kinds_pass(kind):
    assert "FAILED" not in not_ok(checked(kind)).values()


BROKEN = {
    "a flat answer": ({"after": "logit = logit.flatten()"}, "output", "[R, n] = [6, 5], found shape [30]"),
    "an extra axis": ({"after": "logit = logit.unsqueeze(-1)"}, "output", "found shape [6, 5, 1]"),
    "integers": ({"after": "logit = logit.long()"}, "output", "found dtype torch.int64"),
    "a list": ({"after": "logit = logit.tolist()"}, "output", "found list"),
    "an error in forward": ({"before": "request.nothing"}, "output", "mine.py:15: AttributeError"),
    "a squeeze": ({"after": "logit = logit.squeeze()"}, "small sizes", "found [5]"),
    "not a number": ({"after": "logit = logit / 0 * 0"}, "finite", "ordinary features, found nan"),
    "an overflow": ({"after": "logit = torch.exp(logit)"}, "finite", "features x 1000, found inf"),
    "dropout left on": (
        {"after": "logit = functional.dropout(logit, 0.5)"},
        "eval mode",
        "training=self.training",
    ),
    "eval that does not reach all": (
        {
            "more_parts": "self.drop = nn.Dropout(0.5)",
            "more_methods": "def eval(self): return super().train(True)",
        },
        "eval mode",
        "training mode in: the module, u, a, drop",
    ),
    "unseeded noise": ({"after": "logit = logit + torch.randn_like(logit)"}, "repeatable", "random numbers"),
    "noise of numpy": ({"after": "logit = logit + np.random.rand()"}, "repeatable", "random numbers"),
    "a batch statistic": ({"after": "logit = logit - logit.mean(0)"}, "batch = single", "over the batch"),
    "batch norm that trains": (
        {"before": "request = functional.batch_norm(request, None, None, training=True)"},
        "batch = single",
        "mine.py:15: ValueError: Expected more than 1 value per channel when training",
    ),
    "a changed input": ({"before": "ads.mul_(2.0)"}, "side effects", "`ads` changed in place"),
    "a counter": (
        {"more_parts": "self.register_buffer('n', torch.zeros(()))", "after": "self.n += 1"},
        "side effects",
        "found changed: n",
    ),
    "codes that depend on the table": (
        {"more_methods": "def encode_ads(self, ads): return ads - ads.mean(tuple(range(ads.dim() - 1)))"},
        "serving",
        "encode_ads must give an ad the same code",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_fault_is_caught_by_its_check(tmp_path, case, serving_only):
    parts, check, text = BROKEN[case]
    status, said = checked(write_mine(tmp_path, SOURCE, **parts))[check]
    assert status == "FAILED"
    assert text in said


def test_what_a_fault_makes_meaningless_is_skipped_and_not_blamed(tmp_path):
    by_check = checked(write_mine(tmp_path, SOURCE, after="logit = logit + torch.randn_like(logit)"))
    assert by_check["repeatable"][0] == "FAILED"
    status, text = by_check["batch = single"]
    assert status == "skipped" and tells(text, "'repeatable'")
    assert by_check["eval mode"][0] == "ok"


def test_a_listwise_model_is_noted_and_not_refused(tmp_path, serving_only):
    by_check = checked(write_mine(tmp_path, SOURCE, after="logit = logit - logit.mean(1, keepdim=True)"))
    assert by_check["candidates"][0] == "note"
    assert "listwise" in by_check["candidates"][1]
    assert "FAILED" not in not_ok(by_check).values()


def test_a_score_that_depends_on_the_place_in_the_row_is_noted(tmp_path, serving_only):
    by_check = checked(write_mine(tmp_path, SOURCE, after="logit = logit + torch.arange(logit.shape[1])"))
    assert by_check["candidates"][0] == "note"
    assert tells(by_check["candidates"][1], "axis")


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"more_arguments": ", *, depth"}, "argument 'depth'"),
        ({"more_parts": "self.extra = nn.Parameter(torch.from_numpy(np.random.rand(2)))"}, "others in extra"),
        ({"more_parts": "raise RuntimeError('no licence')"}, "mine.py:12: RuntimeError: no licence"),
    ],
)
def test_a_constructor_that_the_engine_cannot_call_is_caught(tmp_path, parts, text):
    by_check = checked(write_mine(tmp_path, SOURCE, **parts))
    assert by_check["constructor"][0] == "FAILED"
    assert tells(by_check["constructor"][1], *text.split())
    status, said = by_check["output"]
    assert status == "skipped" and tells(said, "'constructor'")


def test_a_constructor_without_the_widths_is_shown_beside_the_expected_one(tmp_path):
    kind = write_mine(
        tmp_path, "from torch import nn\nclass Mine(nn.Module):\n  def __init__(self, width): pass"
    )
    status, text = checked(kind)["constructor"]
    assert status == "FAILED"
    assert "expected Mine(request_width, ad_width, pair_width, **options), found Mine(width)" in text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import torch\n\nx = 1 / 0\nclass Mine: pass", "mine.py:3: ZeroDivisionError:"),
        ("import torhc\nclass Mine: pass", "mine.py:1: ModuleNotFoundError: 'torhc'"),
        ("class Mine:\n    def f(self:\n        pass", "mine.py:2: SyntaxError:"),
        ("class Mine: pass", "not a torch.nn.Module class"),
    ],
)
def test_a_file_that_does_not_import_is_shown_with_its_line(tmp_path, source, text):
    status, said = checked(write_mine(tmp_path, source))["import"]
    assert status == "FAILED"
    assert tells(said, *text.split())


@pytest.mark.parametrize(
    ("parts", "check", "status", "text"),
    [
        ({"after": "logit = logit.detach()"}, "gradients", "FAILED", "detached"),
        ({"more_parts": "self.idle = nn.Linear(3, 3)"}, "gradients", "note", "idle.weight, idle.bias"),
        (
            {"more_parts": "self.requires_grad_(False)"},
            "gradients",
            "FAILED",
            "parameters none",
        ),
        ({"after": "logit = -50 * logit.abs()"}, "save and load", "ok", "bit"),
        (
            {"after": "if self.training: logit = logit * np.random.rand()"},
            "training",
            "FAILED",
            "same weights",
        ),
        (
            {
                "more_parts": "self.shift = 0.0",
                "after": "self.shift += 0.001 * self.training; logit = logit + self.shift",
            },
            "save and load",
            "FAILED",
            "register_buffer",
        ),
    ],
)
@pytest.mark.few(3)
def test_what_training_and_storing_need_is_checked(tmp_path, parts, check, status, text):
    outcome, said = checked(write_mine(tmp_path, SOURCE, **parts))[check]
    assert outcome == status
    assert tells(said, *text.split())


@pytest.mark.drill
@pytest.mark.parametrize(
    ("after", "status", "text"),
    [
        ("logit = torch.sigmoid(logit)", "FAILED", "ends in sigmoid"),
        ("logit = torch.sigmoid(logit).clamp(1e-6, 1 - 1e-6)", "FAILED", "found probabilities"),
        ("logit = 1 / (1 + torch.exp(-logit.clamp(-50, 50)))", "FAILED", "found probabilities"),
        ("logit = torch.softmax(logit, -1)", "FAILED", "ends in softmax"),
        ("logit = torch.sigmoid(logit).unsqueeze(-1).squeeze(-1)", "FAILED", "ends in sigmoid"),
        ("logit = torch.relu(logit)", "FAILED", "never below 0"),
        ("logit = functional.logsigmoid(logit)", "note", "log probability"),
        # Not what an untrained net answers counts: all of these lie within [0, 1] at first.
        ("logit = 1e-3 * logit + 0.5", "ok", ""),
        ("logit = (1e-3 * logit + 0.5).clamp(-10, 10)", "ok", ""),
    ],
)
def test_probabilities_are_not_taken_for_logits(tmp_path, after, status, text):
    outcome, said = checked(write_mine(tmp_path, SOURCE, after=after))["logits"]
    assert outcome == status and tells(said, *text.split())


@pytest.mark.drill
def test_a_class_from_python_that_answers_probabilities_is_caught():
    class Sigmoid(TwoTowers):
        def forward(self, *inputs):
            return super().forward(*inputs).sigmoid()

    assert statuses(check_model(Sigmoid))["logits"][0] == "FAILED"
    assert statuses(check_model(TwoTowers))["logits"][0] == "ok"


def test_scores_of_which_only_the_order_counts_may_have_bounds(tmp_path):
    kind = write_mine(tmp_path, SOURCE, after="logit = torch.sigmoid(logit)")
    assert checked(kind, recipe="ltr")["logits"][0] == "ok"


def test_a_model_that_cannot_learn_is_caught(tmp_path):
    by_check = checked(write_mine(tmp_path, SOURCE), learning_rate=1e-12)
    assert by_check["training"][0] == "FAILED"
    assert tells(by_check["training"][1], "loss")


def test_dropout_in_its_place_is_fine(tmp_path):
    parts = {"more_parts": "self.drop = nn.Dropout(0.2)", "after": "logit = self.drop(logit)"}
    assert not_ok(checked(write_mine(tmp_path, SOURCE, **parts))) == {}


def test_options_reach_the_class():
    kind = f"{ROOT / 'scenarios' / 'my_model.py'}:CrossedTowers"
    status, text = checked(kind, options={"dims": 3}, features=("user", "G1", "mismatch_pair"))["constructor"]
    assert status == "ok"
    assert "request_width=5, ad_width=4, pair_width=1, dims=3" in text


def test_an_unknown_feature_gets_a_hint():
    with refused("features:", "'contxt'", "'context'?"):
        check_model("towers", features=["contxt"])


def test_the_command_prints_a_line_per_check_and_exits_with_1_on_failure(tmp_path, capsys, serving_only):
    assert main(["check-model", write_mine(tmp_path, SOURCE, after="logit = logit.flatten()")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("FAILED   output ") and tells(lines[3], "float tensor")
    assert lines[-1] == "1 of 12 checks FAILED"


def test_the_command_speaks_json(tmp_path, capsys, serving_only):
    kind = write_mine(tmp_path, SOURCE)
    assert (
        main(
            ["check-model", kind, "--features", "user, G1", "--recipe", "ltr", "--option", "dims=2", "--json"]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert (printed["model"], printed["features"], printed["recipe"], printed["ok"]) == (
        kind,
        ["user", "G1"],
        "ltr",
        True,
    )
    assert {check["status"] for check in printed["checks"]} == {"ok"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["towerz"], "towerz: 'towerz' 'towers'?"),
        (["scenarios/nothing.py:Mine"], "no file 'scenarios/nothing.py'"),
        (["scenarios/my_model.yaml"], "--model rank, towers, mine"),
        (["scenarios/my_model.yaml", "--model", "mime"], "'mime' 'mine'?"),
        (["towers", "--model", "mine"], "--model scenario"),
        (["towers", "--option", "dims"], "--option dims: no '='; expected KEY=VALUE"),
        (["towers", "--features", "user,"], "--features: unknown feature ''"),
    ],
)
def test_a_mistake_in_the_command_is_explained_with_code_2(words, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["check-model", *words]) == 2
    assert tells(capsys.readouterr().err, *message.split())


SEEN_IDS = ("user", "quality", "G1", "user_id", "ad_id", "advertiser_id")


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.drill
def test_the_built_in_kinds_pass_with_ids(kind):
    """Request: user, G1 of 4 and a row of 3. Ads: quality, G1 of 4 and two rows."""
    found = checked(kind, features=SEEN_IDS, embedding=3)
    assert not_ok(found) == {}
    assert f"request_width={1 + 4 + 3}, ad_width={1 + 4 + 2 * 3}" in found["constructor"][1]


def test_a_class_of_ones_own_is_given_rows_of_ids_as_further_columns(tmp_path):
    found = checked(write_mine(tmp_path, SOURCE), features=SEEN_IDS)
    assert not_ok(found) == {}
    assert f"request_width={5 + 8}, ad_width={5 + 2 * 8}" in found["constructor"][1]


def test_a_history_is_checked_in_a_world_that_has_one():
    with refused("features:", "history"):
        check_model("towers", features=("user", "quality", "history"))


ENCODED = """
import torch
from torch import nn


class Mine(nn.Module):
    def __init__(self, request_width, ad_width, pair_width, dims=4):
        super().__init__()
        self.u, self.a = nn.Linear(request_width, dims), nn.Linear(ad_width, dims)

    def encode_users(self, requests):
        return self.u(requests){of_users}

    def encode_ads(self, ads):
        return self.a(ads)

    def forward(self, request, ads, pair):
        return torch.einsum("rd,rnd->rn", self.u(request), ads){more}
"""
INNER = {
    "both encoders": ({}, "ok", "can retrieve"),
    "another forward": ({"more": " + 1"}, "FAILED", "found logits 1 away"),
    "codes of other widths": ({"of_users": "[:, :-1]"}, "FAILED", "[6, 3] and [30, 4]"),
}


@pytest.mark.parametrize(("parts", "status", "said"), INNER.values(), ids=INNER)
def test_what_encodes_both_sides_has_to_score_by_the_product_of_its_codes(
    tmp_path, serving_only, parts, status, said
):
    found = checked(write_mine(tmp_path, ENCODED, **parts))
    assert found["inner product"][0] == status and said in found["inner product"][1]


def test_what_has_no_codes_scores_and_cannot_retrieve(tmp_path, serving_only):
    status, said = checked(write_mine(tmp_path, SOURCE))["inner product"]
    assert status == "ok" and "not retrieve" in said
