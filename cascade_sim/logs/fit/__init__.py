"""Worlds fitted to a log, and how close they come to it."""
