"""Estimates with intervals: bootstrap, paired moves, whole days, trials."""
