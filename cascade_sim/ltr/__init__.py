"""Objectives compared on learning-to-rank files."""
