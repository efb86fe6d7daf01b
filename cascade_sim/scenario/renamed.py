"""Earlier names of scenario keys and values: refused with the name that they have now."""

from __future__ import annotations

from cascade_sim.scenario.yaml import KeyPath

# Path of a key by its earlier name (`*`: any name, any place in a list) -> its name now.
KEYS = {
    "phases.bootstrap": "cold_start",
    "world.logged": "replay",
    "world.replay.market": "log",
    "models.*.luck": "training_seed",
    "models.*.dumped_by": "logged_scores_from",
    "off_policy.jitter": "estimand",
    "market.training.every": "interval",
    "market.training.history": "window",
    "market.training.settle": "burn_in",
    "world.ids": "id_effects",
    "world.seasons": "seasonality",
    "world.churn.share": "available_share",
    "world.churn.life": "mean_lifetime_days",
    "world.intent.level": "common_shift_sd",
    "world.history.choices": "candidate_pool",
    "world.conversion.opposed_to": "anti_correlated_group",
    "world.conversion.opposition": "anti_correlation",
    "world.replay.fitted.response": "click_model",
}
# Path of a value -> its earlier and its present texts.
VALUES = {
    "models.*.data.*": {"bootstrap": "cold_start"},
    "off_policy.estimand": {"drop": "launch", "keep": "jittered"},
}


def key_now(path: KeyPath) -> KeyPath | None:
    """The path of a key that has another name now; None of any other.

    >>> key_now(("models", "mine", "luck"))
    ('models', 'mine', 'training_seed')
    """
    name = next((new for old, new in KEYS.items() if _is_at(path, old)), None)
    return None if name is None else (*path[:-1], *name.split("."))


def value_now(path: KeyPath, value: object) -> str | None:
    """What a text is called now that was another one before; None of any other."""
    found = (texts.get(value) for at, texts in VALUES.items() if isinstance(value, str) and _is_at(path, at))
    return next(found, None)


def _is_at(path: KeyPath, pattern: str) -> bool:
    steps = pattern.split(".")
    return len(steps) == len(path) and all(
        step in ("*", str(own)) for step, own in zip(steps, path, strict=True)
    )
