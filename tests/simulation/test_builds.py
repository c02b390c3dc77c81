"""Real projects that are built in a sandbox: each workdir has a warm cache of its own, closed to all others."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from real_omac import Done, Omac
from tiers import spread

SANDBOX = (sys.executable, "-c", "from omac.tools.entry import main; main()", "sandbox", "run")
PYTHON = os.path.realpath(sys.executable)
PASSED_ON = (  # how this machine reaches the registries
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CERT", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
PIP_BUILD = """\
import importlib.util, json, pathlib, subprocess, sys, venv
python = sys.executable
if not importlib.util.find_spec("pip"):
    venv.create(".venv", with_pip=True)
    python = ".venv/bin/python"
pip = (python, "-m", "pip", "--disable-pip-version-check")
locked = pathlib.Path("locked.txt")
if not locked.exists():
    wanted = ("--ignore-installed", "--no-deps", "--no-binary", "tomli", "tomli==2.0.1")
    subprocess.run([*pip, "install", "--dry-run", "--report", "report.json", *wanted], check=True)
    (found,) = json.loads(pathlib.Path("report.json").read_text())["install"]
    there = found["download_info"]
    locked.write_text(f"tomli @ {there['url']}#sha256={there['archive_info']['hashes']['sha256']}\\n")
subprocess.run([*pip, "install", "--target", "built", "-r", "locked.txt"], check=True)
program = "import tomli; print(tomli.loads('x = 1'), tomli.__file__)"
subprocess.run([python, "-c", program], env={"PYTHONPATH": "built"}, check=True)
"""


class Builder:
    """A user who builds projects in sandboxes."""

    def __init__(self, omac: Omac) -> None:
        self._omac = omac
        self.home = Path(omac.environment["HOME"])

    def project(self, name: str, files: Mapping[str, str]) -> Path:
        """Make a new project."""
        project = self._omac.root / name
        for path, content in files.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(content)
        return project

    def run(
        self,
        project: Path,
        *command: str,
        network: str = "host",
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> Done:
        """Run a command by `omac sandbox run` in a project."""
        variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        variables |= {} if network == "host" else {"PIP_RETRIES": "0"}
        options = ["--workdir", str(project), "--network", network, *options]
        for name, value in (variables | dict(env or {})).items():
            options += ["--env", f"{name}={value}"]
        done = subprocess.run(
            [*SANDBOX, *options, "--", *command],
            stdin=subprocess.DEVNULL, capture_output=True, env=self._omac.environment, cwd=project, timeout=120,
        )  # fmt: skip
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def ok(self, project: Path, *command: str, network: str = "host", env: Mapping[str, str] | None = None) -> str:
        """Return the output of a command, which has to succeed."""
        done = self.run(project, *command, network=network, env=env)
        assert done.status == 0, f"{command}: {done.out}{done.err}"
        return done.out

    def cache(self, project: Path) -> Path:
        """Return the cache of a project, as its sandbox reports it."""
        return Path(self.ok(project, "sh", "-c", 'printf %s "$OMAC_CACHE_DIR"', network="none"))


@pytest.fixture
def builder(omac: Omac) -> Builder:
    """Return a builder with a home that has nothing in it."""
    return Builder(omac)


def require_apart(builder: Builder, first: Path, second: Path) -> None:
    """Require that a file in the first cache can be read there, but not read, changed or listed from the second."""
    own, foreign = builder.cache(first), builder.cache(second)
    assert own != foreign
    file = next(path for path in sorted(own.rglob("*")) if path.is_file())
    before = file.read_bytes()
    attack = 'cat "$1" || ls "$2" || ls "$3" || echo poison > "$1" || ln "$1" here'
    words = ("sh", "-c", attack, "sh", str(file), str(own), str(own.parent))
    assert builder.run(first, *words, network="none").status == 0
    assert builder.run(second, *words, network="none").status != 0
    assert file.read_bytes() == before
    assert not any(path.is_file() for path in foreign.rglob("*") if path.name == file.name)


@pytest.mark.full
def test_npm(builder: Builder) -> None:
    """A project built with the registry builds a second time without any network; elsewhere that second time fails."""
    assert shutil.which("npm"), "npm is not installed; type: apt-get install npm"
    registry = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True, check=True)
    env = {"NPM_CONFIG_REGISTRY": registry.stdout.strip()}
    files = {
        "package.json": json.dumps({"name": "shop", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}}),
        "index.js": "console.log('built', require('ms')('2 days'))\n",
    }
    shop, second = builder.project("shop", files), builder.project("other", files)
    builder.ok(shop, "npm", "install", "--no-audit", "--no-fund", env=env)
    assert builder.ok(shop, "node", "index.js", network="none") == "built 172800000\n"
    shutil.rmtree(shop / "node_modules")
    again = ("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0")
    shutil.copy(shop / "package-lock.json", second)
    cold = builder.run(second, *again, network="none", env=env)
    assert cold.status != 0
    assert not (second / "node_modules" / "ms").exists()
    builder.ok(shop, *again, network="none", env=env)
    assert builder.ok(shop, "node", "index.js", network="none") == "built 172800000\n"
    require_apart(builder, shop, second)
    assert not (builder.home / ".npm").exists()


@pytest.mark.full
def test_pip(builder: Builder) -> None:
    """A project built with the index builds a second time without any network; elsewhere that second time fails."""
    files = {"build.py": PIP_BUILD}
    shop, second = builder.project("shop", files), builder.project("other", files)
    built = f"{{'x': 1}} {shop}/built/tomli/__init__.py\n"
    assert builder.ok(shop, PYTHON, "build.py").endswith(built)
    shutil.rmtree(shop / "built")
    shutil.copy(shop / "locked.txt", second)
    cold = builder.run(second, PYTHON, "build.py", network="none")
    assert cold.status != 0
    assert "tomli" in cold.out + cold.err
    warm = builder.ok(shop, PYTHON, "build.py", network="none")
    assert "Using cached tomli" in warm
    assert warm.endswith(built)
    require_apart(builder, shop, second)
    assert not (builder.home / ".cache" / "pip").exists()


@pytest.mark.parametrize(
    ("granted", "options"), spread(["..", ".", "{id}", "{id}/tools", "{id}/tools/kept"], [(), ("--ephemeral-cache",)])
)
def test_no_grant_opens_the_cache_of_another(builder: Builder, granted: str, options: tuple[str, ...]) -> None:
    """A grant of a cache, or of a folder above it, does not open it to another workdir: its files stay its own."""
    shop, second = builder.project("shop", {"a": ""}), builder.project("other", {"kept": "fine"})
    cache = builder.cache(shop)
    (cache / "kept").write_text("fine")
    attack = ("sh", "-c", 'cat "$1" && echo poison > "$1"', "sh")
    allowed = os.path.normpath(cache.parents[1] / granted.format(id=cache.parent.name))
    twin = builder.run(second, *attack, "kept", options=("--allow", str(shop), *options))
    assert (twin.status, twin.out) == (0, "fine"), twin
    done = builder.run(second, *attack, str(cache / "kept"), options=("--allow", allowed, *options))
    assert done.status != 0
    assert "fine" not in done.out
    assert (cache / "kept").read_text() == "fine"


def cargo() -> Path | None:
    """Return the real cargo, behind the program that chooses a toolchain by folders of the home."""
    if shutil.which("cargo") is None or shutil.which("cc") is None:
        return None
    done = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True)
    binary = Path(done.stdout.strip()) / "bin" / "cargo"
    return binary if done.returncode == 0 and binary.exists() else None


@pytest.mark.full
def test_cargo(builder: Builder) -> None:
    """A project without dependencies builds with and without network; cargo keeps its files in the workdir's cache."""
    program = cargo()
    if program is None:
        pytest.skip("cargo, or a C compiler to link with, is not installed")
    files = {
        "Cargo.toml": '[package]\nname = "shop"\nversion = "1.0.0"\nedition = "2021"\n',
        "src/main.rs": 'fn main() { println!("built"); }\n',
    }
    shop, second = builder.project("shop", files), builder.project("other", files)
    env = {"PATH": f"{program.parent}:/usr/local/bin:/usr/bin:/bin"}
    for network in ("host", "none"):
        builder.ok(shop, str(program), "build", network=network, env=env)
        assert builder.ok(shop, "target/debug/shop", network="none") == "built\n"
        shutil.rmtree(shop / "target")
    assert list((builder.cache(shop) / "cargo").iterdir())
    require_apart(builder, shop, second)
    assert not (builder.home / ".cargo").exists()
