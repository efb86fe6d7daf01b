"""Diagnostics of finished runs: reopening, traces, comparison."""
