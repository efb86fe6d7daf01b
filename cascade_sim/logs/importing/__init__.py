"""Logs from another system, read in its own columns and units, checked row by row, into a store."""
