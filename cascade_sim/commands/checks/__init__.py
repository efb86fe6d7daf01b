"""Checks: of revenue against a baseline, of custom classes, of the simulator itself."""
