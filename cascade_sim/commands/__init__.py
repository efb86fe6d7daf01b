"""One module per command, in rooms by what one wants; each has an attribute `command`."""
