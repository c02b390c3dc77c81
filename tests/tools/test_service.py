"""omac as a service of systemd: the unit in docs/skills.md, in a real user manager where there is one."""

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from polling import eventually
from programs import omac_at
from real_omac import Omac

from omac.adapters.linux.readiness import VARIABLE
from omac.domain.kernel.run import RunRecovered, RunStopped

SYSTEMD = "/lib/systemd/systemd"
UNIT = re.compile(r"(?m)^    \[Unit\]\n(?:    .*\n|\n)+?    WantedBy=.*\n")

# A user manager in a mount namespace of its own, in which /run is empty; the words are run beside it, then it ends.
MANAGER = """
mount -t tmpfs run /run && mkdir -p /run/systemd/system /run/user/0 && chmod 700 /run/user/0 || exit 99
export XDG_RUNTIME_DIR=/run/user/0
"$0" --user --log-target=console >"$HOME/systemd.log" 2>&1 & manager=$!
for _ in $(seq 100); do
    case $(systemctl --user is-system-running 2>/dev/null) in running|degraded) break ;; esac
    kill -0 $manager 2>/dev/null || break
    sleep 0.1
done
case $(systemctl --user is-system-running 2>&1) in running|degraded) ;; *) cat "$HOME/systemd.log" >&2; exit 99 ;; esac
sh -c "$1"; status=$?
kill $manager; wait $manager
exit $status
"""


def unit() -> str:
    """Return the unit that the document shows."""
    document = Path(__file__).parents[2] / "docs" / "skills.md"
    (shown,) = UNIT.findall(document.read_text())
    return re.sub(r"(?m)^    ", "", shown)


def managed(omac: Omac, script: str, *drop_in: str) -> subprocess.CompletedProcess[str]:
    """Run a script beside a user manager that has the documented unit, with omac's own environment."""
    home = Path(omac.environment["HOME"])
    folder, program = home / ".config/systemd/user", home / ".local/bin/omac"
    (folder / "omac.service.d").mkdir(parents=True)
    omac_at(program)
    (home / "projects").symlink_to(omac.root)
    (folder / "omac.service").write_text(unit())
    variables = [
        f'Environment="{name}={value}"' for name, value in omac.environment.items() if name.startswith("OMAC_")
    ]
    (folder / "omac.service.d/test.conf").write_text("\n".join(["[Service]", *variables, *drop_in, ""]))
    environment = omac.environment | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    environment.pop("XDG_CONFIG_HOME")  # systemd looks for units there
    words = ["unshare", "--mount", "sh", "-c", MANAGER, SYSTEMD, script]
    done = subprocess.run(words, env=environment, cwd=omac.root, capture_output=True, text=True, timeout=100)
    if done.returncode == 99:
        pytest.skip(f"no user manager can run here: {done.stderr}")
    return done


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets a mount namespace of its own")
@pytest.mark.skipif(not os.path.exists(SYSTEMD) or not shutil.which("unshare"), reason="systemd is not installed")
@pytest.mark.full
def test_the_documented_unit(omac: Omac) -> None:
    """A service is ready when systemctl returns, starts again after a kill, and ends in order, its sidecars first."""
    project = omac.approved("shop")
    key = Path(omac.environment["HOME"]) / ".config/omac/vault.key"
    key.parent.mkdir(parents=True)
    omac.ok("vault", "init", "--key-file", str(key))
    script = f"""
    set -e
    systemctl --user start omac
    omac activate {project} >/dev/null
    omac call echo /status --workdir {project} >/dev/null
    omac vault status
    systemctl --user kill --signal KILL omac
    for _ in $(seq 200); do [ $(systemctl --user show omac -P NRestarts) = 1 ] && break; sleep 0.1; done
    systemctl --user start omac
    systemctl --user show omac -P NRestarts
    omac activate {project} >/dev/null
    systemctl --user stop omac
    systemctl --user show omac -P Result
    """
    done = managed(omac, script, f"LoadCredential=omac-key:{key}", "RestartSec=0.1")
    log = Path(omac.environment["HOME"], "systemd.log").read_text()
    assert done.returncode == 0, (done, log)
    assert done.stdout.splitlines()[-2:] == ["1", "success"], (done, log)
    assert "open" in done.stdout, done
    assert not omac.left()
    ends = [type(record.event) for record in omac.events() if isinstance(record.event, RunRecovered | RunStopped)]
    assert ends == [RunRecovered, RunStopped], ends


@pytest.mark.parametrize("prefix", ["", "@"])
def test_ready_is_ready(omac: Omac, prefix: str) -> None:
    """A service manager hears once, by a path or an abstract name, that omac serves; no sooner than it does."""
    name = str(omac.folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name if prefix else name)
        manager.settimeout(20)
        serving = omac.start("serve", "--no-inner", "--json", "--root", str(omac.root), extra={VARIABLE: prefix + name})
        assert manager.recv(100) == b"READY=1"
        assert serving.await_ready(0).call("status").status == 200
        serving.end()
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)


def test_a_manager_that_cannot_be_reached(omac: Omac) -> None:
    """omac serves all the same, and says why the manager will not hear of it."""
    nowhere = str(omac.folder / "nowhere")
    serving = omac.serve(extra={VARIABLE: nowhere})
    reported = f"the service manager at {nowhere} cannot be reached: No such file or directory"
    assert eventually(lambda: reported in serving.said(), 10, reported)


def test_a_command_is_no_service(omac: Omac) -> None:
    """A command that omac launches does not get the manager's socket, with a sandbox or without."""
    for option in ((), ("--no-sandbox",)):
        words = ("serve", *option, "--root", str(omac.root), "--", "env")
        assert f"{VARIABLE}=" not in omac.process(*words, extra={VARIABLE: "/nowhere"}).out
