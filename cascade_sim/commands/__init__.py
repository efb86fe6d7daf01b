"""One module per command, in groups by purpose; each has an attribute `command`."""
