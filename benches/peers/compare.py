#!/usr/bin/env python3
"""Compares Tollgate with its peers: the same work, side by side, in rounds that take turns.

Writes a table (peers.md), a plot (peers.svg) and all samples (peers.json) into target/peers, and the table to the
standard output. benches/README.md has the method.
"""

import argparse
import json
import signal
import sys
from contextlib import ExitStack
from dataclasses import asdict

from contenders import contenders
from processes import PEERS, Missing, Redis, build_tollgate
from results import Result, plot, table

WARM_UP_S = 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the medians are told (default: 5)")
    parser.add_argument("--seconds", type=int, default=5, help="length of each run (default: 5)")
    parser.add_argument("--only", metavar="NAME,...", help="contenders; without it all")
    parser.add_argument("--tollgate", metavar="PATH", help="a program to use instead of building it")
    parser.add_argument("--list", action="store_true", help="print the names of the contenders")
    return parser.parse_args()


def chosen(everyone, only):
    """The contenders that `only` names."""
    if only is None:
        return everyone
    names = only.split(",")
    unknown = set(names) - {contender.name for contender in everyone}
    if unknown:
        sys.exit(f"no such contender: {', '.join(sorted(unknown))}; --list prints their names")
    return [contender for contender in everyone if contender.name in names]


def say(text):
    print(text, file=sys.stderr, flush=True)


def start(everyone, stack):
    """Starts those that can be, and runs each once to warm it up; why the others cannot, by name."""
    missing = {}
    for contender in everyone:
        say(f"starting {contender.name}")
        try:
            contender.start()
            stack.callback(contender.stop)
            contender.run(WARM_UP_S)
        except Missing as why:
            missing[contender.name] = str(why)
            say(f"left out: {contender.name}: {why}")
    return missing


def compare(everyone, rounds, seconds):
    """The results of all contenders."""
    samples = {contender.name: [] for contender in everyone}
    with ExitStack() as stack:
        missing = start(everyone, stack)
        running = [contender for contender in everyone if contender.name not in missing]
        for number in range(1, rounds + 1):
            for contender in running:
                sample = contender.run(seconds)
                samples[contender.name].append(sample)
                say(f"round {number}: {contender.name}: {sample.checks_per_s:,.0f} checks/s")
    return [Result(contender, samples[contender.name], missing.get(contender.name)) for contender in everyone]


def write(results):
    PEERS.mkdir(parents=True, exist_ok=True)
    samples = {result.name: [asdict(sample) for sample in result.samples] for result in results}
    (PEERS / "peers.json").write_text(json.dumps(samples, indent=1) + "\n")
    (PEERS / "peers.svg").write_text(plot(results))
    (PEERS / "peers.md").write_text(table(results))
    print(table(results), end="")


def main():
    # Ended in this way, too, everything that was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = arguments()
    tollgate = options.tollgate
    if options.list:
        print("\n".join(contender.name for contender in contenders(tollgate, Redis)))
        return
    everyone = chosen(contenders(tollgate or build_tollgate(), Redis), options.only)
    write(compare(everyone, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
