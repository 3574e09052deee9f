"""Logs of reinforcement learning runs, read into one canonical form. Needs numpy only."""

from isentrope.runs.pairing import Pairs, pair
from isentrope.runs.read import read_run, read_runs
from isentrope.runs.record import Meaning, Record, Series

__all__ = ["Meaning", "Pairs", "Record", "Series", "pair", "read_run", "read_runs"]
