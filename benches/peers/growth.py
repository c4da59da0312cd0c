#!/usr/bin/env python3
"""How the cost of a check, and memory, grow with keys and connections.

Writes a table (growth.md) into target/peers, and to the standard output. The cost is CPU time of the server processes
for each check: other work on the machine changes it little.
"""

import argparse
import signal
import socket
import sys
from contextlib import ExitStack, contextmanager
from statistics import median

from load import TollgateBench, watched
from processes import PEERS, Redis, Tollgate, build_tollgate
from results import count, markdown

# No state comes to its end meanwhile, and none is used up.
LIMIT = "sliding-window:1000000/1d"

KEYS = [10_000, 100_000, 1_000_000, 10_000_000]
CONNECTIONS = [1, 10, 100, 1_000]
IDLE_CONNECTIONS = 1_000

# Checks in each call where keys grow. 16 calls wait at a time: no more checks than a shard's queue holds.
KEYS_BATCH = {"memory": 1_024, "redis": 256}

# Calls of all connections together that wait at a time, and checks in each, where connections grow.
CALLS = 1_000
CONNECTIONS_BATCH = {"memory": 64, "redis": 8}

# Room for all keys.
CONFIG = "[memory]\nbytes_max = 8589934592\nkeys_max = 100000000\n"

# The first bytes of a client: HELLO of 6 bytes with the id 1, for version 1 alone.
HELLO = bytes.fromhex("06000001" "01000000") + b"TGAT" + bytes([1, 1])
HELLO_OK = 0x81


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs, of which the medians are told (default: 3)")
    parser.add_argument("--seconds", type=int, default=5, help="length of each run (default: 5)")
    parser.add_argument("--keys-max", type=int, default=KEYS[-1], help=f"most keys (default: {KEYS[-1]})")
    parser.add_argument("--store", choices=["memory", "redis"], default="memory", help="default: memory")
    parser.add_argument("--tollgate", metavar="PATH", help="a program to use instead of building it")
    return parser.parse_args()


@contextmanager
def servers(path, store):
    """A Tollgate server, and its Redis if it has one, by their names."""
    PEERS.mkdir(parents=True, exist_ok=True)
    config = PEERS / "growth.toml"
    config.write_text(CONFIG)
    with ExitStack() as stack:
        url, redis = "memory", {}
        if store == "redis":
            redis = {"redis": Redis()}
            stack.callback(redis["redis"].stop)
            url = f"redis://127.0.0.1:{redis['redis'].port}"
        server = Tollgate(path, url, ["--config", config])
        stack.callback(server.stop)
        yield {"server": server} | redis


def cost(options, running, load):
    """Medians of the rounds: checks a second, and CPU time for one of each server."""
    samples = [watched(running, lambda: load(options.seconds)) for _ in range(options.rounds)]
    rate = median(sample.checks_per_s for sample in samples)
    cpu_us = {name: median(sample.cpu_us[name] for sample in samples) for name in running}
    print(f"  {count(rate)} checks/s, {cpu_us}", file=sys.stderr, flush=True)
    return rate, cpu_us


def fill(path, address, keys, batch):
    """Asks until nearly all keys are known: 3 checks for each reach 95 % of them. Each run draws other keys."""
    asked, seed = 0, 2
    while asked < 3 * keys:
        load = TollgateBench(path, address, [*workload(keys), "--batch", batch, "--seed", seed])
        asked, seed = asked + load(1)[1], seed + 1


def workload(keys):
    return ["--limit", LIMIT, "--keys", keys]


def with_keys(options, path, keys):
    """A row of the table of keys."""
    print(f"{keys} keys", file=sys.stderr, flush=True)
    with servers(path, options.store) as running:
        server = running["server"]
        empty_bytes = server.resident_bytes()
        batch = KEYS_BATCH[options.store]
        fill(path, server.address, keys, batch)
        grown_bytes = server.resident_bytes() - empty_bytes
        load = TollgateBench(path, server.address, [*workload(keys), "--batch", batch])
        rate, cpu_us = cost(options, running, load)
    return [count(keys), count(rate), *costs(cpu_us), f"{grown_bytes / keys:.0f}"]


def with_connections(options, path, connections):
    """A row of the table of connections."""
    print(f"{connections} connections", file=sys.stderr, flush=True)
    with servers(path, options.store) as running:
        server = running["server"]
        load = TollgateBench(
            path,
            server.address,
            [*workload(100_000), "--batch", CONNECTIONS_BATCH[options.store], "--connections", connections]
            + ["--in-flight", CALLS // connections],
        )
        load(1)
        rate, cpu_us = cost(options, running, load)
    return [count(connections), count(rate), *costs(cpu_us)]


def costs(cpu_us):
    return [f"{cpu_us[name]:.3f}" if name in cpu_us else "" for name in ("server", "redis")]


def idle(options, path):
    """Memory of a server with many connections on which nothing happens, in MiB."""
    with servers(path, options.store) as running, ExitStack() as stack:
        server = running["server"]
        host, port = server.address.rsplit(":", 1)
        for _ in range(IDLE_CONNECTIONS):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(HELLO)
            header = connection.recv(4096)
            if len(header) < 4 or header[3] != HELLO_OK:
                raise RuntimeError(f"the server answers HELLO with {header!r}")
        return server.resident_bytes() / 2**20


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options = arguments()
    path = options.tollgate or build_tollgate()
    costs_of = ["checks/s", "CPU us a check, server", "CPU us a check, Redis"]
    keys = [with_keys(options, path, keys) for keys in KEYS if keys <= options.keys_max]
    connections = [with_connections(options, path, connections) for connections in CONNECTIONS]
    text = "\n".join([
        markdown(["keys", *costs_of, "bytes of the server a key"], 0, keys),
        markdown(["connections", *costs_of], 0, connections),
        f"With {IDLE_CONNECTIONS} idle connections the server holds {idle(options, path):.0f} MiB.\n",
    ])  # fmt: skip
    (PEERS / "growth.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
