"""Logs of somebody's own market, read in its own columns and units, checked row by row, into a store."""
