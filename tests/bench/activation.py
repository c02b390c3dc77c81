"""The time of an activation, against the same processes spawned bare, in parallel, and probed, in the same run."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.report import Figure, median, publish
from machine import free_port

ECHO = Path(__file__).parents[2] / "examples" / "skills" / "echo"
OMAC = [sys.executable, "-c", "from omac.tools.entry import main; main()"]
MANY = 10
ROUNDS = 9
PROBE_S = 0.002
PATH = "/usr/local/bin:/usr/bin:/bin"  # of both sides: omac passes over interpreters of a project, bare shells do not

# The smallest server there is: ready as soon as its interpreter is up.
AT_ONCE = """
import os, socket
listener = socket.create_server(("127.0.0.1", int(os.environ["SIDECAR_PORT"])))
while True:
    connection, _ = listener.accept()
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nConnection: close\\r\\n\\r\\nok")
    connection.close()
"""


def main() -> bool:
    """Measure both sides in turn; return whether the bounds hold."""
    folder = Path(tempfile.mkdtemp(prefix="ob", dir="/tmp"))
    environment = {**os.environ, "OMAC_STATE_DIR": str(folder / "state"), "HOME": str(folder), "PATH": PATH}
    many, one = folder / "many", folder / "one"
    for number in range(MANY):
        copy_echo(many / ".agents/skills" / f"echo{number}", f"echo{number}")
    write_at_once(one / ".agents/skills/at-once")
    for directory in (many, one):  # what is measured runs from approved copies
        for source in sorted((directory / ".agents/skills").iterdir()):
            approve = [*OMAC, "approve", source.name, "--workdir", str(directory)]
            subprocess.run(approve, env=environment, stdout=subprocess.DEVNULL, check=True)
    server = subprocess.Popen(
        [*OMAC, "serve", "--no-inner", "--json", "--root", str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        control = ready["control_socket"]
        figures = [*compare_many(control, many), *compare_one(control, one)]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
        shutil.rmtree(folder)
    return publish("activation", figures)


def compare_many(control: str, directory: Path) -> list[Figure]:
    """Compare ten ordinary Python skills."""
    sources = sorted((directory / ".agents/skills").iterdir())
    ours, bare = alternate(control, directory, sources)
    ratio = median([a / b for a, b in zip(ours, bare, strict=True)])
    return [
        Figure(
            f"{MANY} Python skills online", f"{median(ours):.0f} ms", f"{median(bare):.0f} ms (bare)", f"{ratio:.2f}x",
            "<= 1.3x", ratio <= 1.3,
        )
    ]  # fmt: skip


def compare_one(control: str, directory: Path) -> list[Figure]:
    """Compare a skill whose sidecar is ready at once."""
    ours, bare = alternate(control, directory, [directory / ".agents/skills/at-once"])
    extra = median([a - b for a, b in zip(ours, bare, strict=True)])
    return [
        Figure(
            "one skill, ready at once", f"{median(ours):.0f} ms", f"{median(bare):.0f} ms (bare)", f"+{extra:.0f} ms",
            "<= +40 ms", extra <= 40,
        )
    ]  # fmt: skip


def alternate(control: str, directory: Path, sources: Sequence[Path]) -> tuple[list[float], list[float]]:
    """Return milliseconds for omac and for bare processes, taken in turn; the first pair is a warm-up."""
    ours, bare = [], []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        manifest = ask(control, "activate", directory)
        ours.append((time.perf_counter() - began) * 1000)
        assert manifest["state"] == "active", manifest
        assert len(manifest["skills"]) == len(sources)
        ask(control, "deactivate", directory)
        bare.append(spawn_bare(sources) * 1000)
    return ours[1:], bare[1:]


def ask(control: str, action: str, directory: Path) -> dict[str, Any]:
    """Make a call of the control plane over its socket, and return the answer."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(control)
    connection.request("POST", f"/__omac__/{action}", json.dumps({"dir": str(directory.resolve())}))
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return dict(answer)


def spawn_bare(sources: Sequence[Path]) -> float:
    """Return the seconds until all of these sidecars, started side by side, answered their probe; kill them then."""
    ports = [free_port() for _ in sources]
    began = time.perf_counter()
    children = [
        subprocess.Popen(
            ["python3", "sidecar.py"],
            cwd=source,
            env={"PATH": PATH, "SIDECAR_PORT": str(port), "SIDECAR_SKILL": source.name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for source, port in zip(sources, ports, strict=True)
    ]
    waiting = set(ports)
    while waiting:
        waiting = {port for port in waiting if not answers(port)}
        if waiting:
            time.sleep(PROBE_S)
    elapsed = time.perf_counter() - began
    for child in children:
        child.kill()
        child.wait()
    return elapsed


def answers(port: int) -> bool:
    """Return whether the sidecar on this port answers 200."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def copy_echo(target: Path, name: str) -> None:
    """Copy the example skill under another name."""
    shutil.copytree(ECHO, target)
    meta = target / "omac.yaml"
    text = meta.read_text().replace("name: echo", f"name: {name}", 1).replace("mount: echo", f"mount: {name}", 1)
    meta.write_text(text)
    guide = target / "SKILL.md"
    guide.write_text(guide.read_text().replace("name: echo", f"name: {name}", 1))


def write_at_once(target: Path) -> None:
    """Write a skill whose sidecar does nothing but answer."""
    target.mkdir(parents=True)
    (target / "SKILL.md").write_text("---\nname: at-once\ndescription: answers\n---\n")
    (target / "omac.yaml").write_text("name: at-once\nsidecar:\n  command: [python3, sidecar.py]\n")
    (target / "sidecar.py").write_text(AT_ONCE)
