"""The load of `./bench facade`, and its measurements: requests by wrk, bodies by curl, connections at rest."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.facade_peers import BODY_BYTES, Way
from bench.report import median
from machine import cpu_s

# The paths of `targets` in turn, or always that of the URL; no two requests have the same head.
SCRIPT = """
local count, targets = 0, {}
init = function(arguments)
    if arguments[1] then
        for line in io.lines(arguments[1]) do targets[#targets + 1] = line end
    end
end
request = function()
    count = count + 1
    wrk.headers["X-Request-Id"] = count .. "-" .. tostring(wrk.thread)
    return wrk.format(nil, targets[count % #targets + 1])
end
done = function(summary, latency, requests)
    local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
    print(string.format("RESULT %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50),
        latency:percentile(99), failed))
end
"""


class Load(NamedTuple):
    """A measurement by wrk: requests per second, and the milliseconds that half and 99 % of them took; and the
    processor's time of the proxy for one request, in microseconds."""

    rate: float
    p50: float
    p99: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.rate:,.0f}/s, p50 {self.p50:.3f} ms, p99 {self.p99:.1f} ms, {self.cpu_us:.0f} us CPU"


def load(url: str, pid: int, script: Path, connections: int, seconds: int, targets: str = "") -> Load:
    """Measure a round of requests to `url`, or to the paths in the file `targets`. Every request has to succeed."""
    cpu = cpu_s(pid)
    line = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), f"{url}/"]
    line += ["--", targets] if targets else []
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    match = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", done.stdout)
    assert match, done.stdout
    requests, duration_us, p50_us, p99_us, failed = map(int, match.groups())
    assert requests, done.stdout
    assert not failed, done.stdout
    spent = (cpu_s(pid) - cpu) * 1e6 / requests
    return Load(requests / duration_us * 1e6, p50_us / 1000, p99_us / 1000, spent)


def middle(loads: Sequence[Load]) -> Load:
    """Return the median of each figure."""
    return Load(*(median(values) for values in zip(*loads, strict=True)))


def download(way: Way) -> float:
    """Return bytes per second of an answer of a gibibyte."""
    began = time.perf_counter()
    line = ["curl", "-sSf", "-o", os.devnull, "-w", "%{size_download}", f"{way.answering}/big"]
    size = subprocess.run(line, check=True, capture_output=True).stdout
    assert int(size) == BODY_BYTES, size
    return BODY_BYTES / (time.perf_counter() - began)


def upload(way: Way, file: Path) -> float:
    """Return bytes per second of a request with a gibibyte; the skill answers with the count of bytes it read."""
    began = time.perf_counter()
    line = ["curl", "-sSf", "-H", "Expect:", "-T", str(file), f"{way.reading}/"]
    size = subprocess.run(line, check=True, capture_output=True).stdout
    assert int(size) == BODY_BYTES, size
    return BODY_BYTES / (time.perf_counter() - began)


class Resting(NamedTuple):
    """Connections after one request: how many were answered and are open, and a process's memory for them, in MiB."""

    opened: int
    more_mib: float


def rest(way: Way, connections: int) -> Resting:
    """Open connections, and leave them at rest."""
    address, _, path = way.answering.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    request = f"GET /{path}/ HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    opened: list[socket.socket] = []

    def ask() -> None:
        connection = socket.create_connection((host, int(port)), timeout=10)
        opened.append(connection)
        connection.sendall(request)
        answer = b""
        while len(answer) < 1024:
            more = connection.recv(65536)
            assert more, answer
            answer += more
        assert answer.startswith(b"HTTP/1.1 200"), answer

    try:
        ask()  # what the first request loads is not the connections'
        before = _memory_mib(way.pid)
        for _ in range(connections):
            ask()
        more = _memory_mib(way.pid) - before
        return Resting(sum(map(_is_open, opened[1:])), more)
    finally:
        for connection in opened:
            connection.close()


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _memory_mib(pid: int) -> float:
    """Return the memory that only this process uses."""
    match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert match
    return int(match[1]) / 1024
