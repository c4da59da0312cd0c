"""Tollgate's own script from a driver that does nothing else: calls are made before the run and sent back to back.

This is the most that a server in front of the same Redis could reach. `script/plan.rs` has the layout of a plan.
"""

import itertools
import random
import socket
import struct
import time
from collections import deque
from statistics import quantiles

from load import Sample
from processes import ROOT

SCRIPT = ROOT / "src" / "store" / "redis" / "script"
PARTS = ["shard_clock.lua", "lone_checks.lua", "steps.lua"]

PARTITIONS = 16
# What a server sends at full load, and the most that it puts in a call.
CHECKS_PER_CALL = 160
CALLS_PER_PIPELINE = 16
PIPELINES = 2
# Calls are made once and sent over and over.
CALLS = 4_096

NEVER = 2**53 - 1
TOKEN_BUCKET = 1
AMOUNT_MAX = 2**52


def command(*words):
    """A command as Redis reads it."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def plan(checks, rate_per_s, capacity):
    """One rule, and a lone check of cost 1 for each field: tokens a second in microseconds, whole where 1,000,000 is a
    multiple of the rate."""
    rule = struct.pack("<BBdddd", TOKEN_BUCKET, 0, 1_000_000 // rate_per_s, 1, capacity, AMOUNT_MAX)
    return struct.pack("<HHH", 1, 1, 0) + rule + struct.pack("<HHHId", 1, 1, checks, 1, 1.0)


class RawScript:
    """Sends calls to a Redis for some time. The keys are there before."""

    def __init__(self, redis, keys, rate_per_s, capacity):
        script = "\n".join((SCRIPT / part).read_text() for part in PARTS)
        self.sha = redis.command("SCRIPT", "LOAD", script)
        self.limit = rate_per_s, capacity
        self.partitions = [range(first, keys, PARTITIONS) for first in range(PARTITIONS)]
        self.connection = socket.create_connection(("127.0.0.1", redis.port))
        self.replies = self.connection.makefile("rb")
        self.fill()
        calls = [self.call(*self.drawn()) for _ in range(CALLS)]
        size = CALLS_PER_PIPELINE
        self.pipelines = [b"".join(calls[start : start + size]) for start in range(0, CALLS, size)]

    def call(self, partition, keys):
        fields = [b"raw-poli" + b"key:%08d" % key for key in keys]
        return command("EVALSHA", self.sha, 1, f"{{{partition}}}raw", NEVER, plan(len(fields), *self.limit), *fields)

    def drawn(self):
        partition = random.randrange(PARTITIONS)
        return partition, random.sample(self.partitions[partition], CHECKS_PER_CALL)

    def fill(self):
        """Charges every key once."""
        for partition, keys in enumerate(self.partitions):
            for start in range(0, len(keys), CHECKS_PER_CALL):
                self.connection.sendall(self.call(partition, keys[start : start + CHECKS_PER_CALL]))
                self.skip_replies(1)

    def skip_replies(self, count):
        for _ in range(count):
            head = self.replies.readline()
            if head != b"*2\r\n":
                raise RuntimeError(f"Redis answers {head!r}")
            self.replies.readline()
            self.replies.read(int(self.replies.readline()[1:]) + 2)

    def __call__(self, seconds):
        """A sample, and the number of checks."""
        pipelines, sent_at, times_s = itertools.cycle(self.pipelines), deque(), []
        start = time.perf_counter()
        while time.perf_counter() - start < seconds or sent_at:
            if len(sent_at) < PIPELINES and time.perf_counter() - start < seconds:
                sent_at.append(time.perf_counter())
                self.connection.sendall(next(pipelines))
            else:
                self.skip_replies(CALLS_PER_PIPELINE)
                times_s.append(time.perf_counter() - sent_at.popleft())
        checks = len(times_s) * CALLS_PER_PIPELINE * CHECKS_PER_CALL
        p50_s, p99_s = (quantiles(times_s, n=100)[percent - 1] for percent in (50, 99))
        return Sample(checks / (time.perf_counter() - start), p50_s * 1e6, p99_s * 1e6), checks
