"""One module per command; each has an attribute `command`."""
