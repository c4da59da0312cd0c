"""Servers under test: started on free ports of the loopback, ended however the script ends."""

import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = ROOT / "target" / "peers"

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 10
PR_SET_PDEATHSIG = 1

LIBC = ctypes.CDLL(None)


class Missing(Exception):
    """A program that is not there and cannot be installed; the text says why."""


def program(name, package):
    """The path of a program of the system."""
    path = shutil.which(name)
    if not path:
        raise Missing(f"{name} is not installed (package {package})")
    return path


def tail(text):
    """The last line of a program's output."""
    return (text.strip().splitlines() or ["no output"])[-1]


def build_tollgate():
    """Builds the server; its path."""
    subprocess.run(["cargo", "build", "--release", "--locked", "--bin", "tollgate"], cwd=ROOT, check=True)
    return ROOT / "target" / "release" / "tollgate"


def install_crate(crate, version):
    """Installs a program by cargo under target/peers; its path."""
    path = PEERS / "bin" / crate
    if not path.exists():
        command = ["cargo", "install", "--root", PEERS, "--version", version, "--locked", crate]
        options = os.environ | {"CARGO_TARGET_DIR": str(PEERS / "build")}
        installed = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=options)
        if installed.returncode != 0:
            raise Missing(f"cargo could not install it: {tail(installed.stderr)}")
    return path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def end_with_parent():
    """In a child: the system ends it when this script ends, also when that is killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """A server process."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(
            [str(part) for part in command], stderr=subprocess.DEVNULL, preexec_fn=end_with_parent, **options
        )

    def cpu_s(self):
        """CPU time so far, of all threads, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        """Memory that it holds."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def wait_for_port(self, port):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args[0]} ended with {self.process.returncode}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError(f"{self.process.args[0]} does not listen on port {port}")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Redis(Server):
    """A Redis that keeps nothing on disk."""

    def __init__(self):
        self.port = free_port()
        options = ["--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        super().__init__([program("redis-server", "redis-server"), *options], stdout=subprocess.DEVNULL)
        self.wait_for_port(self.port)

    def command(self, *arguments):
        """The answer to a command, as text."""
        client = program("redis-cli", "redis-tools")
        command = [client, "-p", str(self.port), "--raw", *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def cpu_s(self):
        """CPU time as Redis tells it, in microseconds' precision."""
        info = dict(line.split(":", 1) for line in self.command("INFO", "cpu").splitlines() if ":" in line)
        return float(info["used_cpu_sys"]) + float(info["used_cpu_user"])


class Tollgate(Server):
    """A Tollgate server."""

    def __init__(self, path, store="memory", options=()):
        command = [path, "serve", "--listen", "127.0.0.1:0", "--admin", "off", "--store", store]
        super().__init__([*command, "--log-level", "error", *options], stdout=subprocess.PIPE, text=True)
        self.address = self.wait_for_address()

    def wait_for_address(self):
        ready, _, _ = select.select([self.process.stdout], [], [], START_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("listening on "):
            self.stop()
            raise RuntimeError(f"tollgate serve says {line!r} instead of where it listens")
        return line.split()[-1]


class Throttlecrab(Server):
    """A throttlecrab-server that speaks the protocol of Redis."""

    VERSION = "0.4.40"

    def __init__(self):
        # Its build needs that.
        program("protoc", "protobuf-compiler")
        path = install_crate("throttlecrab-server", self.VERSION)
        self.port = free_port()
        options = ["--redis", "--redis-host", "127.0.0.1", "--redis-port", self.port, "--log-level", "error"]
        super().__init__([path, *options], stdout=subprocess.DEVNULL)
        self.wait_for_port(self.port)
