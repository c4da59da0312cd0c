#!/usr/bin/env python3
"""The rate at which p99 passes a bound (the knee), and the times of calls at half of it.

Writes a table (knee.md) into target/peers, and to the standard output.
"""

import argparse
import signal
import sys
from contextlib import ExitStack

from contenders import KEYS, LIMIT
from load import TollgateBench
from processes import PEERS, Redis, Tollgate, build_tollgate
from results import count, markdown

BATCH = 64
HEADINGS = ["store", "knee, checks/s", "half, checks/s", "p50 us", "p99 us", "p999 us"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=5, help="length of each run (default: 5)")
    parser.add_argument("--p99", default="2ms", metavar="TIME", help="the bound of the knee (default: 2ms)")
    parser.add_argument("--tollgate", metavar="PATH", help="a program to use instead of building it")
    return parser.parse_args()


def row(options, path, name, store):
    """The knee of a server on a store, and what calls take at half of it."""
    with ExitStack() as stack:
        server = Tollgate(path, store)
        stack.callback(server.stop)

        def ask(*more):
            load = ["--keys", KEYS, "--limit", LIMIT, "--batch", BATCH, *more]
            return TollgateBench(path, server.address, load).report(options.seconds)

        sweep = ask("--sweep", "--sweep-p99", options.p99)["sweep"]
        knee_per_s = sweep["knee_per_s"]
        if knee_per_s is None:
            return [name, f"p99 is above {options.p99} at each rate", *[""] * 4]
        half = ask("--rate", round(knee_per_s / 2))
    times = [half[time] for time in ("p50_us", "p99_us", "p999_us")]
    return [name, *map(count, [knee_per_s, half["checks_per_s"], *times])]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = arguments()
    path = options.tollgate or build_tollgate()
    with ExitStack() as stack:
        redis = Redis()
        stack.callback(redis.stop)
        stores = {"memory": "memory", "one Redis": f"redis://127.0.0.1:{redis.port}"}
        text = markdown(HEADINGS, 1, [row(options, path, name, store) for name, store in stores.items()])
    PEERS.mkdir(parents=True, exist_ok=True)
    (PEERS / "knee.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
