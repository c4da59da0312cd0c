"""Who is compared. A contender is started once, does the same work in each round, and is stopped in the end.

To add one: a class with `name`, `how`, `start`, `run` and `stop`, and a line in `contenders`.
"""

from pathlib import Path

from load import RedisBenchmark, TollgateBench, watched
from processes import Throttlecrab, Tollgate
from raw_script import RawScript

CLASSIC = Path(__file__).with_name("classic.lua")

# The same for all: 100,000 keys that are asked equally often, each of which may pass 100 times a second.
KEYS = 100_000
CAPACITY = 100
RATE_PER_S = 100
# What redis-benchmark opens unless told otherwise.
CONNECTIONS = 50
# Within what a command line may hold.
MSET_WORDS = 20_000
LIMIT = f"token-bucket:{RATE_PER_S}/1s,burst={CAPACITY}"


class Shared:
    """A server of several contenders: the first starts it, the last stops it."""

    def __init__(self, make):
        self.make, self.server, self.users, self.failure = make, None, 0, None

    def start(self):
        if self.failure:
            raise self.failure
        if self.server is None:
            try:
                self.server = self.make()
            except Exception as failure:
                self.failure = failure
                raise
        self.users += 1
        return self.server

    def stop(self):
        self.users -= 1
        if self.users == 0:
            self.server.stop()
            self.server = None


class RespContender:
    """A server that is asked in the protocol of Redis. `command` makes the command from the server."""

    def __init__(self, name, how, shared, server_name, pipeline, command, keys=KEYS, connections=CONNECTIONS):
        self.name, self.how = name, how
        self.shared, self.server_name = shared, server_name
        self.connections, self.pipeline, self.command, self.keys = connections, pipeline, command, keys

    def start(self):
        server = self.shared.start()
        self.servers = {self.server_name: server}
        self.load = RedisBenchmark(
            server.port, self.connections, self.pipeline, self.keys, self.command(server)
        )

    def run(self, seconds):
        return watched(self.servers, lambda: self.load(seconds))

    def stop(self):
        self.shared.stop()


class ScriptContender:
    """Tollgate's script on a Redis, without a server."""

    def __init__(self, name, how, redis):
        self.name, self.how, self.redis = name, how, redis

    def start(self):
        redis = self.redis.start()
        self.servers = {"redis": redis}
        self.load = RawScript(redis, KEYS, RATE_PER_S, CAPACITY)

    def run(self, seconds):
        return watched(self.servers, lambda: self.load(seconds))

    def stop(self):
        self.redis.stop()


class TollgateContender:
    """A Tollgate server, with its embedded store or with a Redis, asked by `tollgate bench`."""

    def __init__(self, name, how, path, options, redis=None, serve_options=()):
        self.name, self.how, self.path, self.redis = name, how, path, redis
        self.options = ["--keys", KEYS, "--limit", LIMIT, *options]
        self.serve_options = serve_options

    def start(self):
        redis = self.redis.start() if self.redis else None
        store = f"redis://127.0.0.1:{redis.port}" if redis else "memory"
        server = Tollgate(self.path, store, self.serve_options)
        self.servers = {"server": server} | ({"redis": redis} if redis else {})
        self.load = TollgateBench(self.path, server.address, self.options)

    def run(self, seconds):
        return watched(self.servers, lambda: self.load(seconds))

    def stop(self):
        self.servers["server"].stop()
        if self.redis:
            self.redis.stop()


def classic(redis):
    """The command of the classic script."""
    sha = redis.command("SCRIPT", "LOAD", CLASSIC.read_text())
    return ["EVALSHA", sha, 1, "classic:__rand_int__", CAPACITY, RATE_PER_S, 1]


def get(redis):
    """A GET of keys that are there."""
    keys = [word for index in range(KEYS) for word in (f"key:{index:012}", "x" * 16)]
    for start in range(0, len(keys), MSET_WORDS):
        redis.command("MSET", *keys[start : start + MSET_WORDS])
    return ["GET", "key:__rand_int__"]


def throttle(_):
    return ["THROTTLE", "key:__rand_int__", CAPACITY, RATE_PER_S, 1]


def contenders(tollgate, make_redis):
    """All contenders, in the order of a round."""
    crab = Shared(Throttlecrab)

    def redis():
        """One for each contender: none pays for what another leaves, such as keys that expire or a larger Lua heap."""
        return Shared(make_redis)

    def of_redis(name, how, command, pipeline=100, connections=CONNECTIONS):
        return RespContender(name, how, redis(), "redis", pipeline, command, connections=connections)

    def of_crab(name, how, pipeline, keys=KEYS):
        return RespContender(name, f"THROTTLE, {how}", crab, "server", pipeline, throttle, keys)

    def of_tollgate(name, how, options, store=None, serve_options=()):
        return TollgateContender(name, how, tollgate, options, store, serve_options)

    batches, hot, one_caller = ["--batch", 256], ["--dist", "hot"], ["--connections", 1, "--tasks", 1]

    return [
        of_redis("redis-ping", "PING, by 100", lambda _: ["PING"]),
        of_redis("redis-get", "GET, by 100", get),
        of_redis("classic", "one EVALSHA a check, by 100", classic),
        of_crab("throttlecrab", "one at a time", 1),
        of_crab("throttlecrab-16", "by 16", 16),
        of_crab("throttlecrab-100", "by 100", 100),
        of_crab("throttlecrab-hot", "by 100, one key", 100, keys=1),
        ScriptContender("tollgate-script", "Tollgate's script alone, 160 checks a call", redis()),
        of_tollgate("tollgate-redis", "one Redis, batches of 256", batches, redis()),
        of_tollgate("tollgate-redis-hot", "one Redis, batches of 256, one key", [*batches, *hot], redis()),
        of_tollgate(
            "tollgate-redis-hot-asked", "the same without a deny cache", [*batches, *hot], redis(),
            ["--deny-cache-entries", "0"],
        ),
        of_tollgate("tollgate", "embedded, batches of 1,024", ["--batch", 1024, "--connections", 2]),
        of_tollgate("tollgate-calls", "embedded, 1,000 tasks, one check a call", ["--tasks", 1000]),
        of_redis("idle-ping", "PING, one connection, one at a time", lambda _: ["PING"], 1, 1),
        of_tollgate("idle-tollgate-redis", "one Redis, one task, one check at a time", one_caller, redis()),
        of_tollgate("idle-tollgate", "embedded, one task, one check at a time", one_caller),
    ]
