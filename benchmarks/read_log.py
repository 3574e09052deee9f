"""Time and memory to read logs of a million lines, and the time of 2,000 bootstrap fits.

    python benchmarks/read_log.py [--lines 1000000] [--folder /tmp]

Each log is written once (about 250 bytes a line), read in a fresh process, and removed.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KEYS = (
    "actor/entropy",
    "actor/pg_loss",
    "actor/grad_norm",
    "critic/rewards/mean",
    "critic/score/mean",
    "response_length/mean",
    "perf/throughput",
    "timing_s/step",
)


def write_log(kind: str, path: Path, lines: int) -> None:
    """Writes a log of one kind: every line a step."""
    rng = random.Random(0)
    with path.open("w") as file:
        if kind == "csv":
            file.write("step," + ",".join(KEYS) + "\n")
        for step in range(lines):
            values = [rng.random() for _ in KEYS]
            if kind == "csv":
                row = ",".join([str(step), *map(repr, values)])
            elif kind == "jsonl":
                data = dict(zip(KEYS, (round(v, 6) for v in values), strict=True))
                row = json.dumps({"step": step, "data": data})
            else:
                items = " - ".join(f"{k}:{v:.6f}" for k, v in zip(KEYS, values, strict=True))
                row = f"(TaskRunner pid=12345) step:{step} - {items}"
            file.write(row + "\n")


def read_one(path: Path) -> None:
    """Reads a log and prints seconds, peak memory in MB, and points. Run in a process of its own."""
    from isentrope.runs import read_run

    start, worked = time.perf_counter(), time.process_time()
    record = read_run(path)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    points = len(record.series["actor/entropy"])
    print(
        f"{seconds:.1f} s ({worked:.1f} s of CPU), {peak:.0f} MB at most, {points} points, {record.format}"
    )


def bootstrap() -> None:
    """Prints the time of 2,000 bootstrap fits of 1,000 points."""
    import numpy as np

    from isentrope.law.bootstrap import bootstrap_fits

    rng = np.random.default_rng(0)
    h = np.linspace(1, 0.1, 1000)
    r = 0.9 - 0.3 * np.exp(h) + 0.02 * rng.normal(size=1000)
    start, worked = time.perf_counter(), time.process_time()
    bootstrap_fits(h, r, fits=2_000)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    print(f"2,000 bootstrap fits of 1,000 points: {seconds:.3f} s ({worked:.3f} s of CPU)")


def main() -> None:
    """Writes, reads and removes a log of each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--kinds", nargs="+", default=["verl.log", "verl.jsonl", "flat.csv"])
    parser.add_argument("--read", type=Path)
    options = parser.parse_args()
    if options.read:
        read_one(options.read)
        return
    for kind in options.kinds:
        path = options.folder / f"isentrope-benchmark-{kind}"
        write_log(kind.split(".")[1], path, options.lines)
        size = path.stat().st_size / 2**20
        print(f"{kind}: {options.lines} lines, {size:.0f} MiB: ", end="", flush=True)
        subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)
        path.unlink()
    bootstrap()


if __name__ == "__main__":
    main()
