"""Logged auctions from another system: what a log is made of, and the checksummed store that holds one."""

from cascade_sim.logs.store.format import About, Level
from cascade_sim.logs.store.store import LogStore, StoreWriter, open_store, write_store

__all__ = ["About", "Level", "LogStore", "StoreWriter", "open_store", "write_store"]
