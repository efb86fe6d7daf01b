"""Files that are whole or not there: run folders, locks, tables, checkpoints, trained models."""
