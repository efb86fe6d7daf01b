"""The nets that score: towers, co-action, the net of learning-to-rank files."""
