"""How decisions are measured: by the ground truth, or by what a log has."""
