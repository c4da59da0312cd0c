"""Load generators: redis-benchmark for what speaks the protocol of Redis, `tollgate bench` for Tollgate."""

import csv
import json
import subprocess
from dataclasses import dataclass, field

from processes import end_with_parent, program, tail

# Enough to find out how fast it is, and to ask most of the keys.
FIRST_REQUESTS = 200_000
# The same for one connection that waits for each answer.
FIRST_REQUESTS_IDLE = 10_000


@dataclass
class Sample:
    """What one run found. Times are those of whoever waits for a call."""

    checks_per_s: float
    p50_us: float
    p99_us: float
    # CPU time of each server for one check, by the server's name.
    cpu_us: dict = field(default_factory=dict)


def run(command):
    """Runs a load generator; its standard output."""
    command = [str(part) for part in command]
    ran = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=end_with_parent
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}: {tail(ran.stderr)}")
    return ran.stdout


def watched(servers, load):
    """Runs `load`, which answers a sample and the number of its checks; adds the CPU time of the servers."""
    before = {name: server.cpu_s() for name, server in servers.items()}
    sample, checks = load()
    sample.cpu_us = {name: (server.cpu_s() - before[name]) * 1e6 / checks for name, server in servers.items()}
    return sample


class RedisBenchmark:
    """A command that redis-benchmark sends over and over."""

    def __init__(self, port, connections, pipeline, keys, command):
        self.options = ["-p", port, "-c", connections, "-P", pipeline, "-r", keys, "--csv"]
        self.command = command
        self.requests_min = FIRST_REQUESTS if connections > 1 else FIRST_REQUESTS_IDLE
        self.rate_per_s = 0

    def __call__(self, seconds):
        """A sample of about `seconds`, and the number of commands: redis-benchmark ends by number."""
        requests = max(self.requests_min, int(self.rate_per_s * seconds))
        sample = self.send(requests)
        self.rate_per_s = sample.checks_per_s
        return sample, requests

    def send(self, requests):
        path = program("redis-benchmark", "redis-tools")
        output = run([path, *self.options, "-n", requests, *self.command])
        row = next(csv.DictReader(output.splitlines()))
        return Sample(
            checks_per_s=float(row["rps"]),
            p50_us=float(row["p50_latency_ms"]) * 1_000,
            p99_us=float(row["p99_latency_ms"]) * 1_000,
        )


class TollgateBench:
    """`tollgate bench` on a server."""

    def __init__(self, path, address, options):
        self.command = [path, "bench", "--server", address, "--json", "-", "--quiet", *options]

    def report(self, seconds):
        """The report of a run. All of its checks are counted: nothing is warmed up."""
        return json.loads(run([*self.command, "--warm-up", "0s", "--duration", f"{seconds}s"]))

    def __call__(self, seconds):
        """A sample, and the number of checks."""
        report = self.report(seconds)
        checks = report["allowed"] + report["denied"]
        if report["errors"] + report["degraded"] > 0:
            raise RuntimeError(f"checks without a decision: {report['first_error'] or 'the store did not answer'}")
        return Sample(report["checks_per_s"], report["p50_us"], report["p99_us"]), checks
