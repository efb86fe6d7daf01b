"""Scenario files: their keys, checks, errors with line and column, overrides and differences."""
