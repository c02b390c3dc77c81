"""What a call of a skill costs on its way through the facade, beside nginx as a proxy of the same skill.

The skill is an nginx that answers with 1 KiB. wrk calls it with headers that differ from request to request, through
nginx and through `omac serve` in turn: what disturbs one disturbs the other. Each call through omac is recorded
durably before it is forwarded. BENCH_FACADE_S: how long one round is; BENCH_FACADE_ROUNDS: how many there are.
"""

import os
import re
import resource
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.report import Figure, median, publish
from polling import eventually
from real_omac import Omac, Serving, omac_in

from omac.domain.sidecars.sidecar import Started

SECONDS = float(os.environ.get("BENCH_FACADE_S", "4"))
ROUNDS = int(os.environ.get("BENCH_FACADE_ROUNDS", "3"))
IDLE = 2_000
FILES = 8_192  # descriptors, of this process and of those it starts
BODY_BYTES = 1 << 30
TICKS = os.sysconf("SC_CLK_TCK")
PROGRAMS = ("wrk", "nginx", "curl")
RATES = {32: (0.25, 0.45), 256: (0.45, 0.75)}  # connections: what part of nginx's rate must be, and what is aimed at
BODY_MIN, IDLE_MIB_MAX = 0.5, 40.0

META = """\
name: answering
sidecar:
  command: [sh, ./begin]
  health: {path: /}
  max_body_bytes: 2147483648
"""
BEGIN = f"""\
folder=$(mktemp -d)
truncate -s {BODY_BYTES} "$folder/big"
sed "s/PORT/$SIDECAR_PORT/; s#FOLDER#$folder#g" nginx.conf > "$folder/nginx.conf"
exec {shutil.which("nginx")} -c "$folder/nginx.conf"
"""
COMMON = """
user root; daemon off; master_process off; worker_processes 1; error_log stderr crit; pid {folder}/{name}.pid;
events {{ worker_connections 8192; }}
http {{
    access_log off; keepalive_requests 100000000; client_max_body_size 0; server_tokens off;
    client_body_temp_path {folder}/{name}.body; proxy_temp_path {folder}/{name}.proxy;
    fastcgi_temp_path {folder}/{name}.1; uwsgi_temp_path {folder}/{name}.2; scgi_temp_path {folder}/{name}.3;
    {inside}
}}
"""
SKILL = """server { listen 127.0.0.1:PORT; default_type application/json; root FOLDER;
        location / { return 200 '%s'; } location /big { try_files /big =404; } }"""
PROXY = """upstream skill {{ server 127.0.0.1:{port}; keepalive 512; keepalive_requests 100000000; }}
    server {{ listen 127.0.0.1:{own} backlog=4096; location / {{ proxy_pass http://skill; proxy_http_version 1.1;
        proxy_set_header Connection ""; proxy_buffering off; proxy_request_buffering off; }} }}"""
SCRIPT = """
local count = 0
request = function()
    count = count + 1
    wrk.headers["X-Request-Id"] = count .. "-" .. tostring(wrk.thread)
    return wrk.format()
end
done = function(summary, latency, requests)
    local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
    print(string.format("RESULT %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(50),
        latency:percentile(99), failed))
end
"""


class Load(NamedTuple):
    """What wrk saw: requests per second, milliseconds that half and 99 % of them took; and the processor's time that
    the proxy took for one, in microseconds."""

    rate: float
    p50: float
    p99: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.rate:,.0f}/s, p50 {self.p50:.2f} ms, p99 {self.p99:.1f} ms, {self.cpu_us:.0f} us CPU"


class Way(NamedTuple):
    """A way to the skill: its address, and the process that forwards."""

    url: str
    pid: int


def main() -> bool:
    """Measure all; True when the bounds hold."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        print(f"facade: {', '.join(missing)} cannot be found")
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    with tempfile.TemporaryDirectory(prefix="obf", dir="/tmp") as folder, omac_in(Path(folder)) as omac:
        serving, url = served(omac)
        (started,) = omac.events(Started)
        script = Path(folder, "unique.lua")
        script.write_text(SCRIPT)
        with proxying(Path(folder), started.event.birth.port) as peer:
            ours = Way(url, serving.process.pid)
            kept = idle(ours)  # first: what a load leaves in memory would hide it
            figures = [*rates(ours, peer, script), body(ours, peer), kept]
        serving.end()
        return publish("facade", figures)


def served(omac: Omac) -> tuple[Serving, str]:
    """A server, and the URL of its one skill."""
    project = omac.root / "shop"
    skill = omac.skill(project, "answering", META)
    inside = SKILL % ("x" * 1024)
    (skill / "nginx.conf").write_text(COMMON.format(folder="FOLDER", name="answering", inside=inside))
    (skill / "begin").write_text(BEGIN)
    omac.approve(project, "answering")
    serving = omac.serve()
    return serving, str(serving.skill(project, "answering")["base"]).rstrip("/")


@contextmanager
def proxying(folder: Path, port: int) -> Iterator[Way]:
    """An nginx that forwards to the skill's port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()[1]
    config = folder / "proxy.conf"
    config.write_text(COMMON.format(folder=folder, name="proxy", inside=PROXY.format(port=port, own=own)))
    process = subprocess.Popen(["nginx", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: _answers(own), 10.0, "nginx")
        yield Way(f"http://127.0.0.1:{own}", process.pid)
    finally:
        process.terminate()
        process.wait()


def rates(ours: Way, peer: Way, script: Path) -> list[Figure]:
    """With one connection, 32 and 256."""
    figures = []
    for connections in (1, *RATES):
        taken = [(load(ours, script, connections), load(peer, script, connections)) for _ in range(ROUNDS + 1)][1:]
        mine, theirs = (_middle([pair[side] for pair in taken]) for side in (0, 1))
        part = mine.rate / theirs.rate
        must, aim = RATES.get(connections, (0.0, 0.0))
        bound = f">= {must:g}x, aim {aim:g}x" if must else "-"
        figures.append(
            Figure(f"c={connections}, strict audit", str(mine), str(theirs), f"{part:.3f}x", bound, part >= must)
        )
    return figures


def load(way: Way, script: Path, connections: int) -> Load:
    """One round. Every request has to succeed."""
    cpu = _cpu_s(way.pid)
    line = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS:g}s", "-s", str(script), f"{way.url}/"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", done.stdout)
    assert found, done.stdout
    requests, duration_us, p50_us, p99_us, failed = map(int, found.groups())
    assert requests, done.stdout
    assert not failed, done.stdout
    spent = (_cpu_s(way.pid) - cpu) * 1e6 / requests
    return Load(requests / duration_us * 1e6, p50_us / 1000, p99_us / 1000, spent)


def body(ours: Way, peer: Way) -> Figure:
    """An answer of a gibibyte."""
    taken = [(_download_s(ours), _download_s(peer)) for _ in range(ROUNDS)]
    mine, theirs = (BODY_BYTES / median([pair[side] for pair in taken]) / 1e6 for side in (0, 1))
    part = mine / theirs
    return Figure(
        "1 GiB from the skill", f"{mine:,.0f} MB/s", f"{theirs:,.0f} MB/s", f"{part:.2f}x", f">= {BODY_MIN:g}x",
        part >= BODY_MIN,
    )  # fmt: skip


def idle(ours: Way) -> Figure:
    """Connections over which one request has gone, and that stay open."""
    address = ours.url.removeprefix("http://").partition("/")
    host, _, port = address[0].partition(":")
    request = f"GET /{address[2]}/ HTTP/1.1\r\nHost: {address[0]}\r\n\r\n".encode()
    before, opened, kept = _memory_mib(ours.pid), [], 0
    try:
        for _ in range(IDLE):
            connection = socket.create_connection((host, int(port)), timeout=10)
            opened.append(connection)
            connection.sendall(request)
            kept += connection.recv(64).startswith(b"HTTP/1.1 200")
        more = _memory_mib(ours.pid) - before
    finally:
        for connection in opened:
            connection.close()
    return Figure(
        f"memory with {IDLE:,} idle connections", f"+{more:.0f} MiB", "-", f"{kept:,} answered",
        f"<= +{IDLE_MIB_MAX:g} MiB", more <= IDLE_MIB_MAX and kept == IDLE,
    )  # fmt: skip


def _middle(loads: list[Load]) -> Load:
    return Load(*(median(values) for values in zip(*loads, strict=True)))


def _download_s(way: Way) -> float:
    began = time.perf_counter()
    subprocess.run(["curl", "-sSf", "-o", os.devnull, f"{way.url}/big"], check=True)
    return time.perf_counter() - began


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _cpu_s(pid: int) -> float:
    """The processor's time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _memory_mib(pid: int) -> float:
    """What a process alone keeps in memory."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1024
