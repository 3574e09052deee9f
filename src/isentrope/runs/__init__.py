"""Run logs, our own and those of other trainers, read into one record. Needs numpy only."""
