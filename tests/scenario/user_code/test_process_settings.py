"""What a custom class sets for the whole process lasts as long as the class is asked."""

import gc
import io
import os
import signal
import sys
import warnings

import numpy as np
import pytest
import torch

from answers.told import refused
from cascade_sim.cli import main
from cascade_sim.foundation.errors import UserError
from cascade_sim.market.visits import ask, build_click_model
from cascade_sim.scenario.market import Users
from cascade_sim.scenario.plugins import errors_of

SETTINGS = {
    "folder": (os.getcwd, lambda: os.chdir("/")),
    "dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float64)),
    "gradients": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    "numpy's errors": (np.geterr, lambda: np.seterr(all="raise")),
    "warnings": (lambda: list(warnings.filters), lambda: warnings.simplefilter("error")),
    "recursion": (sys.getrecursionlimit, lambda: sys.setrecursionlimit(500)),
    "Ctrl-C": (
        lambda: signal.getsignal(signal.SIGINT),
        lambda: signal.signal(signal.SIGINT, lambda *_: None),
    ),
    "garbage": (gc.isenabled, gc.disable),
    "streams": (lambda: sys.stdout, lambda: setattr(sys, "stdout", sys.stderr)),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_class_sets_is_put_back(name, fails):
    tell, change = SETTINGS[name]
    before = tell()

    def call():
        with errors_of("place", "mine.py:Mine"):
            change()
            if fails:
                raise ValueError("no")

    if fails:
        with pytest.raises(UserError, match="Mine"):
            call()
    else:
        call()
    assert tell() == before


def test_filters_that_are_put_back_work():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with errors_of("place", "mine.py:Mine"):
            warnings.simplefilter("error")
        warnings.warn("look", stacklevel=1)
    assert [str(one.message) for one in heard] == ["look"]


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_class_may_write_to_a_stream_and_not_close_it(name, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, name, stream)
    with pytest.raises(UserError, match=rf"sys\.{name}"), errors_of("place", "mine.py:Mine"):
        print("hello", file=getattr(sys, name))
        getattr(sys, name).close()
    assert not stream.closed and stream.getvalue() == "hello\n"


def test_an_error_is_told_where_the_working_folder_was_removed(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with refused("place: Mine:", "ValueError: no"), errors_of("place", "mine.py:Mine"):
        raise ValueError("no")


CLICK_MODEL = """
import numpy as np
class Mine:
    def __init__(self, slot_effects):
        pass
    def expected(self, true_ctr, shown):
        raise UnicodeError('\\ud800')
"""


def test_half_a_character_in_an_error_is_written_out(tmp_path):
    (tmp_path / "mine.py").write_text(CLICK_MODEL)
    users = Users(click_model=f"{tmp_path / 'mine.py'}:Mine")
    model, shown = build_click_model(users, np.ones(3)), np.ones((2, 3), bool)
    with pytest.raises(UserError) as caught:
        ask(model, users, shown * 0.5, shown, shown * 0.5, shown * 0.5)
    assert r"\ud800" in str(caught.value).encode().decode()


MODEL = """
from torch import nn
class Mine(nn.Module):
    def __init__(self, request_width, ad_width, pair_width):
        super().__init__()
        self.layer = nn.Linear(ad_width, 1)
    def encode_ads(self, ads):
        raise UnicodeError('\\ud800')
    def forward(self, request, ads, pair):
        return self.layer(ads)[..., 0]
"""


def test_a_check_tells_it_as_well(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(MODEL)
    assert main(["check-model", f"{tmp_path / 'mine.py'}:Mine"]) == 1
    assert r"\ud800" in capsys.readouterr().out.encode().decode()
