"""How decisions are measured: by the hidden truth, or by what a log has."""
