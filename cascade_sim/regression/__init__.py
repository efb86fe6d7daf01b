"""Regression checks on revenue: what a run earned, kept and compared."""
