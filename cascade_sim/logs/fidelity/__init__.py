"""Fidelity of a world to a log: samples, summary statistics, two-sample test."""
