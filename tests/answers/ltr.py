"""Findings of a comparison on learning-to-rank files, with invented numbers."""


def figure(value, gap=None, p=None):
    found = {"value": value, "low": value - 0.01, "high": value + 0.01, "sd": 0.005}
    return found if gap is None else {**found, "gap": gap, "p": p}


def made_findings():
    def row(name, *, stable=3, learning=0, gap=None, p=None, alpha=None):
        chosen = [
            {"seed": s, "alpha": a, "learning_rate": 0.003, "epoch": 4}
            for s, a in zip((1, 2, 3), alpha or [None] * 3, strict=True)
        ]
        return {
            "name": name, "n_stable": stable, "n_judged": 3, "n_learning": learning, "chosen": chosen,
            "objective": name.split(" ")[0], "calibrator": None, "has_scale": "*" not in name,
            **{metric: figure(0.5, gap, p) for metric in ("ndcg", "ndcg_1", "loss", "ece", "pcoc", "auc_pr")},
        }  # fmt: skip

    def cell(objective, alpha, ndcg, loss):
        return {
            "objective": objective, "alpha": alpha, "learning_rate": 0.003, "seed": 1,
            "ndcg": ndcg, "loss": loss,
        }  # fmt: skip

    return {
        "task": "binary",
        "loss": "LogLoss",
        "lists": {"train": 1000, "valid": 40, "test": 50},
        "seeds": [1, 2, 3],
        "tuned": [],
        "trainings": {"pointwise": 1, "softmax": 1, "rcr": 2},
        "split_by_seed": False,
        "constant_auc_pr": 0.3,
        "skipped": 0.1,
        "constant_loss": 0.6,
        "layers": [64, 32],
        "epochs": 4,
        "batch": 32,
        "steps": 128,
        "baseline": "pointwise",
        "comparisons": 6,
        "best": {
            "ndcg": {"name": "rcr", "near": ["pointwise"], "others": 2},
            "loss": {"name": "pointwise", "near": [], "others": 1},
        },
        "diverged": [],
        "rows": [
            row("pointwise"),
            row("softmax *", stable=0, gap=0.2, p=0.01),
            row("rcr", gap=0.2, p=0.2, alpha=(0.5, 0.1, 0.5)),
        ],
        "cells": [cell("pointwise", None, 0.5, 0.4), cell("rcr", 0.5, 0.6, 0.4), cell("rcr", 0.1, 0.4, 0.5)],
        "wins": {
            "pointwise": {"rcr": {"games": 2, "won": 1, "lost": 1}},
            "rcr": {"pointwise": {"games": 2, "won": 1, "lost": 1}},
        },
    }
