"""Scorers whose score becomes a probability otherwise than by the sigmoid: another link, or a calibrator.

The score comes from the fused kernel of the net as ever. All maps here rise with the score (of calibrators:
see the table in models.calibrators), so within a request they change prices and not the order by pCTR.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from cascade_sim.cascade.cost import cost_of
from cascade_sim.cascade.scorers import ModelScorer, Scorer
from cascade_sim.foundation.errors import UserError
from cascade_sim.models import calibrators
from cascade_sim.models.calibrators import Calibrator
from cascade_sim.models.objectives import Objective
from cascade_sim.protocols import Cost
from cascade_sim.storage.files import (
    discarded_on_error,
    make_folder,
    opened,
    seal,
    storage_errors,
    temporary,
)

LEAST = 2.0**-60  # a probability of 0 would shut an ad out of the auction, and has no logit
MOST = 1.0 - 2.0**-24  # the last float32 below 1: a student's target needs a logit too


class MappedScorer(ModelScorer):
    """A model's scorer with `probability` (block, scores [R, m]) -> [R, m] in place of its own link."""

    def __init__(
        self,
        scorer: ModelScorer,
        link: str,
        probability: Callable[[object, np.ndarray], np.ndarray],
        calibrator: Calibrator | None = None,
        of_logits: bool = False,
    ):
        super().__init__(scorer.name, scorer.view, link)
        self.of_logits = of_logits  # what is mapped is the log-odds of a click by itself
        self.of_net: Scorer = getattr(scorer, "of_net", scorer)  # whose scores are those of the net itself
        self._scorer, self._probability, self.calibrator = scorer, probability, calibrator
        self.module = scorer.module  # type: ignore[attr-defined]  # every trained model's scorer has one

    @property
    def cost(self) -> Cost | None:
        """That of the net: a map of scores counts as nothing."""
        return cost_of(self._scorer)

    def logit(self, block, ids):
        """The score that the map is applied to; a logit only where the link is the sigmoid."""
        return self._scorer.logit(block, ids)

    def predict(self, block, ids):
        p = self._probability(block, self.checked_logit(block, ids))
        return np.clip(p, LEAST, 1.0).astype(np.float32)

    def log_odds(self, block, ids):
        p = np.clip(self._probability(block, self.checked_logit(block, ids)), LEAST, MOST)
        return (np.log(p) - np.log1p(-p)).astype(np.float32)


def with_link(scorer: ModelScorer, objective: Objective) -> ModelScorer:
    """The scorer with the objective's link; the scorer itself if that is the sigmoid, which it has."""
    if objective.link == "sigmoid":
        return scorer
    return MappedScorer(scorer, objective.link, lambda _, score: objective.probability(score))


def with_calibrator(scorer: ModelScorer, calibrator: Calibrator, *, of_logits: bool = False) -> ModelScorer:
    """The scorer with a calibrator on its scores; one that looks at requests sees the model's features.

    `of_logits`: the scores are log-odds of a click already, before the calibrator.
    """

    def probability(block, score: np.ndarray) -> np.ndarray:
        if not calibrator.uses_request:
            return calibrator(score)
        return calibrator(score, scorer.view.request_features(block.users, block.context))

    return MappedScorer(scorer, "calibrator", probability, calibrator, of_logits)


def dumper_of(scorer: Scorer) -> ModelScorer | None:
    """The scorer, if its raw scores are dumped beside what it predicts: log-odds that a calibrator changed.

    None where the prediction says all there is to dump: its own log-odds are those of the model, or (scores
    without a scale, and links other than the sigmoid) the only log-odds there are.
    """
    return scorer if isinstance(scorer, MappedScorer) and scorer.of_logits else None


def calibrator_file(model: Path) -> Path:
    """Where the calibrator of the model in a file is kept: beside it."""
    return model.with_name(f"{model.stem}.calibrator.safetensors")


def export_calibrator(calibrator: Calibrator, path: Path, key: str = "") -> None:
    """Write a calibrator to a file of its own, with the key under which it is kept, if there is one."""
    with storage_errors(path):
        make_folder(path.parent)
        temp = temporary(path)
        with discarded_on_error(temp):
            calibrators.save(calibrator, temp, key)
            seal(temp, path)


def load_calibrator(path: Path, key: str | None = None) -> Calibrator:
    """The calibrator in a file; UserError if there is none, it is damaged, or kept under another key."""
    from safetensors import SafetensorError

    try:
        opened(path).close()  # no pipe, no link: the library would wait, and follow
        return calibrators.load(path, key)
    except FileNotFoundError:
        raise UserError(f"{path} is missing, so a model has no calibrator; run the scenario again") from None
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise UserError(f"{path} holds no calibrator: {error}; run the scenario again") from error
