"""`curl --unix-socket "$OMAC_SOCKET" http://x/<mount>/...` under `omac start`: the socket is the capability."""

import json
import shutil
from pathlib import Path

import pytest
from real_omac import ECHO_SKILL, Omac, Serving, curl
from started import started

pytestmark = pytest.mark.full

INSIDE = """
set -e
ask() { curl -sS -o /dev/null -w '%{http_code}\\n' "$@"; }
by_socket() { ask --unix-socket "$OMAC_SOCKET" "$@"; }
by_socket http://x/echo/echo/flat
by_socket http://any.example:80//echo///echo//slashes
by_socket "http://x/${OMAC_ECHO_BASE#*//*/}/echo/by-token"
by_socket http://x/shared/echo/global
by_socket http://x/__global__/shared/echo/global
by_socket http://x/nowhere/
by_socket -H 'Origin: https://example.com' http://x/echo/echo/page
ask "$OMAC_BASE/echo/echo/flat"
ask "http://localhost:$OMAC_PORT/echo/echo/flat"
"""


def shared(omac: Omac) -> None:
    """Write the echo skill once more, as one that all projects share, and approve it."""
    source = Path(omac.environment["HOME"]) / ".agents" / "skills" / "shared"
    shutil.copytree(ECHO_SKILL, source)
    meta = (source / "omac.yaml").read_text()
    (source / "omac.yaml").write_text(meta.replace("name: echo\n", "name: shared\n").replace(": echo\n", ": shared\n"))
    omac.ok("approve", "shared", "--global")


def test_flat_paths_in_a_sandbox(omac: Omac) -> None:
    """The socket alone is enough, with any Host and any slashes; each access is on record, without a session."""
    project = omac.approved("shop")
    shared(omac)
    done = omac.run("start", "--workdir", str(project), "--", "sh", "-c", INSIDE)
    assert (done.status, done.err.partition("\n")[0]) == (0, "omac: what happened while it ran:"), done
    assert done.out.split() == ["200"] * 5 + ["404", "403", "404", "404"]
    rows = omac.audit("--outcome", "completed")
    paths = ["/echo/flat", "/echo/slashes", "/echo/by-token", "/echo/global", "/echo/global"]
    assert [(row["path"], row["session"], row["dir"]) for row in rows] == [(path, None, str(project)) for path in paths]
    assert [row["skill"] for row in rows] == ["echo"] * 3 + ["shared"] * 2
    refused = [(row["dir"], row["path"], row["status"]) for row in omac.audit("--outcome", "refused")]
    assert (str(project), "/", 404) in refused
    assert (str(project), "/echo/page", 403) in refused


def status(socket: str, path: str) -> int:
    """Return the status of a request by a Unix socket."""
    return curl("--unix-socket", socket, f"http://x{path}").status


def socket_of(run: Serving) -> str:
    """Return the facade's socket of a shell that prints its own."""
    return run.line().strip()


WAIT = 'echo "$OMAC_SOCKET"; cat "$OMAC_CONTROL_TOKEN_FILE"; echo; while kill -0 $PPID 2>/dev/null; do sleep 0.05; done'


def test_each_run_has_its_own_skills_and_the_server_none(omac: Omac) -> None:
    """A socket leads to the skills of its run's directory; once that is offline it leads nowhere, and a reload leads
    there again. The server's socket takes tokens only, and so does a port."""
    shop, blog = omac.project("shop", "echo", "till"), omac.project("blog", "echo", "quill")
    omac.approve(shop, "echo", "till")
    omac.approve(blog, "echo", "quill")
    sockets = [socket_of(started(omac, project, WAIT)) for project in (shop, blog)]
    assert [status(sockets[0], f"/{mount}/status") for mount in ("echo", "till", "quill")] == [200, 200, 404]
    assert [status(sockets[1], f"/{mount}/status") for mount in ("echo", "till", "quill")] == [200, 404, 200]
    serving = omac.serve("--workdir", str(shop))
    assert status(serving.ready["facade_socket"], "/echo/status") == 404
    token = serving.activate(shop)["dir_token"]
    assert status(serving.ready["facade_socket"], f"/{token}/echo/status") == 200
    assert status(sockets[0], f"/{token}/echo/status") == 404  # of another run: nothing is known of it here

    control = str(Path(sockets[0]).with_name("control.sock"))

    def call(action: str) -> int:
        body = json.dumps({"dir": str(shop)})
        return curl("--unix-socket", control, "-d", body, f"http://localhost/__omac__/{action}").status

    assert call("deactivate") == 200
    assert status(sockets[0], "/echo/status") == 404
    assert status(sockets[1], "/echo/status") == 200
    assert call("activate") == 200
    assert status(sockets[0], "/echo/status") == 200


def test_another_sandbox_cannot_open_the_socket(omac: Omac) -> None:
    """The socket is in the state directory, which no sandbox sees, and in that run's own sandbox."""
    shop, blog = omac.project("shop"), omac.project("blog")
    omac.approve(shop)
    socket = socket_of(started(omac, shop, WAIT))
    script = f"test -S {socket} || echo absent; curl -sS --unix-socket {socket} http://x/echo/status || echo $?"
    done = omac.run("start", "--workdir", str(blog), "--", "sh", "-c", script)
    assert done.out.split() == ["absent", "7"]
