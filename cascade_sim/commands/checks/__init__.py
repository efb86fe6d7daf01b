"""Checks: of revenue against a baseline, of classes of your own, of the simulator itself."""
