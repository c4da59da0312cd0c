#!/usr/bin/env python3
"""Instructions for each item of the micro-benchmarks that run on one thread, counted by valgrind.

    benches/instructions.py [TEXT]     those whose name contains TEXT

A count does not depend on what else the machine does: compare it before and after a change.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The others wait for sockets.
SUBJECTS = ("codec/", "limit/", "placement/", "memory_store/")
# The function that runs what is measured; see benches/common.rs.
COUNTED = "*tollgate_counted*"


def build():
    """Builds the benchmarks; the path of their program."""
    command = ["cargo", "bench", "--bench", "micro", "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = (json.loads(line) for line in built.stdout.splitlines())
    return next(message["executable"] for message in messages if message.get("target", {}).get("name") == "micro")


def names(program):
    """The names of all benchmarks; the last part of each is the number of its items."""
    listed = subprocess.run([program, "--bench", "--list"], check=True, stdout=subprocess.PIPE, text=True)
    return [line.removesuffix(": benchmark") for line in listed.stdout.splitlines() if line.endswith(": benchmark")]


def count(program, name):
    """Instructions of one run of a benchmark."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--toggle-collect={COUNTED}"]
    command = [*valgrind, program, "--bench", "--test", "--exact", name]
    run = subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    # Criterion starts a process of its own, of which valgrind tells too: nothing.
    collected = sum(map(int, re.findall(r"Collected : (\d+)", run.stderr)))
    if collected == 0:
        sys.exit(f"{name}: valgrind found no function {COUNTED}")
    return collected


def main():
    if not shutil.which("valgrind"):
        sys.exit("valgrind is missing; install it, e.g.: apt-get install valgrind")
    text = sys.argv[1] if len(sys.argv) > 1 else ""
    program = build()
    print("| benchmark | instructions an item |\n|---|---:|")
    for name in names(program):
        if name.startswith(SUBJECTS) and text in name:
            print(f"| {name} | {count(program, name) / int(name.rsplit('/', 1)[1]):.1f} |", flush=True)


if __name__ == "__main__":
    main()
