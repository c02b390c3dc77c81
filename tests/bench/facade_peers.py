"""The programs that `./bench facade` starts beside omac: an nginx and a reader of bodies as skills; and the proxies
that omac is measured against, nginx, HAProxy, and Go's ReverseProxy where a Go toolchain is installed."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from machine import free_port
from polling import eventually
from real_omac import Omac, Serving

from omac.domain.sidecars.sidecar import Started

BODY_BYTES = 1 << 30

ANSWERING = """\
name: answering
sidecar:
  command: [sh, ./begin]
  health: {path: /}
"""
BEGIN = f"""\
folder=$(mktemp -d)
truncate -s {BODY_BYTES} "$folder/big"
sed "s/PORT/$SIDECAR_PORT/; s#FOLDER#$folder#g" nginx.conf > "$folder/nginx.conf"
exec {shutil.which("nginx")} -c "$folder/nginx.conf"
"""
READING = f"""\
name: reading
sidecar:
  command: [python3, sidecar.py]
  health: {{path: /}}
  limits: {{max_body_bytes: {2 * BODY_BYTES}}}
"""
READER = """\
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Reader(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        left = length = int(self.headers["Content-Length"] or 0)
        room = memoryview(bytearray(1 << 20))
        while left and (got := self.rfile.readinto1(room[:left])):
            left -= got
        told = b"%d" % (length - left)
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%b" % (len(told), told))

    do_PUT = do_GET

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["SIDECAR_PORT"])), Reader).serve_forever()
"""
NGINX = """
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
NGINX_PROXY = """upstream skill {{ server 127.0.0.1:{port}; keepalive 512; keepalive_requests 100000000; }}
    server {{ listen 127.0.0.1:{own} backlog=4096; proxy_http_version 1.1; proxy_set_header Connection "";
        proxy_request_buffering off;
        location / {{ proxy_buffering off; proxy_pass http://skill; }}
        location /big {{ proxy_pass http://skill; proxy_max_temp_file_size 0;
            proxy_buffer_size 64k; proxy_buffers 8 256k; proxy_busy_buffers_size 1m; }}
        location /upload {{ proxy_pass http://127.0.0.1:{reader}/; client_body_buffer_size 1m; }} }}"""
HAPROXY = """
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    option http-keep-alive
    http-reuse always
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen proxy
    bind 127.0.0.1:{own}
    server skill 127.0.0.1:{port}
"""
GO = """package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	skill, _ := url.Parse("http://127.0.0.1:" + os.Args[2])
	transport := &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true}
	proxy := httputil.NewSingleHostReverseProxy(skill)
	proxy.Transport = transport
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], proxy))
}
"""


class Way(NamedTuple):
    """A way to the skills: the addresses of the one that answers and of the one that reads bodies ("": this way does
    not lead there), and the process that forwards."""

    name: str
    answering: str
    reading: str
    pid: int


class Skills(NamedTuple):
    """The skills of one server: the ways through omac, and the ports where they listen."""

    omac: Way
    answering: int
    reading: int


def serve_skills(omac: Omac) -> tuple[Serving, Skills]:
    """Start a server with both skills online."""
    project = omac.root / "shop"
    answering = omac.skill(project, "answering", ANSWERING)
    inside = SKILL % ("x" * 1024)
    (answering / "nginx.conf").write_text(NGINX.format(folder="FOLDER", name="answering", inside=inside))
    (answering / "begin").write_text(BEGIN)
    omac.skill(project, "reading", READING, READER)
    omac.approve(project, "answering", "reading")
    serving = omac.serve()
    names = ("answering", "reading")
    answers, reads = (str(serving.skill(project, name)["base"]).rstrip("/") for name in names)
    return serving, Skills(Way("omac", answers, reads, serving.process.pid), *(port_of(omac, name) for name in names))


def port_of(omac: Omac, skill: str) -> int:
    """Return the port of a sidecar that runs."""
    (port,) = {record.event.birth.port for record in omac.events(Started) if record.stream.endswith(f"/{skill}")}
    return int(port)


@contextmanager
def started(name: str, line: Sequence[str | Path], port: int, *, reads: bool = False) -> Iterator[Way]:
    """Start a proxy that listens on `port`; `reads`: it leads to the reader of bodies, too."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(line, stdout=quiet, stderr=quiet)
    base = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(port), 10.0, name)
        yield Way(name, base, f"{base}/upload" if reads else "", process.pid)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def nginx(folder: Path, skills: Skills) -> Iterator[Way]:
    """Start the nginx that omac is measured against."""
    own, config = free_port(), folder / "nginx.conf"
    inside = NGINX_PROXY.format(port=skills.answering, reader=skills.reading, own=own)
    config.write_text(NGINX.format(folder=folder, name="proxy", inside=inside))
    with started("nginx", ["nginx", "-c", config], own, reads=True) as way:
        yield way


@contextmanager
def others(folder: Path, skills: Skills) -> Iterator[list[Way]]:
    """Start the proxies whose figures are printed beside: HAProxy, and Go's ReverseProxy if it can be built here."""
    with ExitStack() as stack:
        ways = []
        if program := shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin"):
            own, config = free_port(), folder / "haproxy.conf"
            config.write_text(HAPROXY.format(port=skills.answering, own=own))
            ways.append(stack.enter_context(started("HAProxy", [program, "-db", "-f", config], own)))
        if shutil.which("go"):
            own, source, program = free_port(), folder / "proxy.go", str(folder / "proxy")
            source.write_text(GO)
            subprocess.run(["go", "build", "-o", program, source], check=True)
            line = [program, str(own), str(skills.answering)]
            ways.append(stack.enter_context(started("Go's ReverseProxy", line, own)))
        yield ways


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
