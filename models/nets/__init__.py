"""The nets that score: towers, co-action, crosses, and the net of learning-to-rank files."""
