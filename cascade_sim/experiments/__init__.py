"""Experiment designs on a market: who gets which arm, and how far each design is from the launch."""
