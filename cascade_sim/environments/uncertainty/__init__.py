"""How uncertain what was fitted leaves the figures that rest on it."""
