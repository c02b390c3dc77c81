"""The commands that omac proposes for skills of a project whose name an agent chose: the name is one word of them."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_omac import Omac
from simulation.skills import meta

NAME = "x;>pwned;$(>pwned)`>pwned` 'y\" -z"  # needs no program to be found


def offered(value: object) -> Iterator[str]:
    """Yield every command under a key `fix` of decoded JSON."""
    if isinstance(value, dict):
        yield from (command for command in value.get("fix", ()) if isinstance(command, str))
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from offered(inner)


@pytest.mark.full
def test_every_offered_command_is_quoted(omac: Omac, tmp_path: Path) -> None:
    """Each proposed command can be pasted, for skills that are unapproved, incomplete, broken, changed, unknown or
    outside."""
    project = omac.project(NAME, "fresh")
    omac.skill(project, "waits", meta("waits"), "pass")
    omac.skill(project, "broken", "name: [", "")
    omac.skill(
        project, "ends", meta("ends").replace("secrets:\n    - name: SLACK_TOKEN", "secrets: []"), "raise SystemExit"
    )
    omac.approve(project, "waits", "ends")
    server = omac.serve()
    directory = str(project)
    documents = [server.call(action, {"dir": directory}).json() for action in ("activate", "reload")]
    documents.append(json.loads(omac.ok("status", "--json")))
    commands = [command for document in documents for command in offered(document)]
    for words in (
        ("approve", "nobody", "--workdir", directory),
        ("approve", "fresh", "--hash", "sha256:0", "--workdir", directory),
        ("approve", "broken", "--workdir", directory),
        ("register", "waits", "--workdir", directory),
        ("register", "fresh", "--workdir", directory, "--hash", "sha256:0"),
        ("deregister", "fresh", "--workdir", directory),
        ("secrets", "set", "waits", "NONE", "--workdir", directory),
        ("secrets", "unset", "waits", "NONE", "--workdir", directory),
        ("config", "show", "waits", "REGION", "--workdir", directory),
        ("config", "set", "waits", "NONE", "x", "--workdir", directory),
        ("list", "--workdir", directory),
        ("activate", f"{directory}/missing"),
        ("activate", str(tmp_path / NAME)),
        ("reload", f"{directory}/sub"),
        ("journal", "restore", f"{directory}/missing"),
        ("journal", "check", "--journal", f"{directory}/missing"),
        ("sandbox", "run", "--workdir", f"{directory}/missing", "--", "true"),
        ("sandbox", "run", "--read", f"{directory}/missing", "--", "true"),
        ("sandbox", "run", "--workdir", directory, "--", f"./{NAME}"),
        ("sandbox", "run", "--workdir", directory, "--profile", NAME, "--", "true"),
        ("start", "--workdir", f"{directory}/missing", "--", "true"),
        ("start", "--workdir", directory, "--", NAME),
    ):
        done = omac.run(*words)
        commands += [
            line.strip()[5:] for line in (done.out + done.err).splitlines() if line.strip().startswith("try: ")
        ]
    assert len(commands) > 15
    for command in commands:
        parts = shlex.split(command, comments=True)
        assert all(NAME in part or "pwned" not in part for part in parts), command
        subprocess.run(
            ["/bin/bash", "-c", command], cwd=tmp_path, env={"PATH": "/nowhere"}, capture_output=True, check=False
        )
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.full
def test_commands_for_what_is_not_there(omac: Omac, tmp_path: Path) -> None:
    """Each command that is proposed for a folder or a skill that is missing does something when it is pasted, in
    whatever folder."""
    empty, file = tmp_path / "empty", tmp_path / "file"
    empty.mkdir()
    file.touch()
    home = {"HOME": str(file), "XDG_CONFIG_HOME": f"{file}/config"}  # nothing can be made in it
    for words, environment in (
        (("approve", "nobody", "--workdir", str(empty)), {}),
        (("trust", str(empty)), {}),
        (("skill", "check", str(empty)), {}),
        (("skill", "check", f"{tmp_path}/no/such"), {}),
        (("start", "--workdir", f"{tmp_path}/no/such", "--", "true"), {}),
        (("journal", "restore", f"{tmp_path}/no/such"), {}),
        (("vault", "init", "--key-file", f"{file}/no/such"), {}),
        (("settings", "set", "serve.audit", "strict"), home),
        (("bridge", "install", "claude"), home | {"CLAUDE_CONFIG_DIR": f"{file}/no/such"}),
    ):
        done = omac.run(*words, extra=environment)
        fixes = [line.removeprefix("  try: ") for line in done.err.splitlines() if line.startswith("  try: ")]
        assert fixes, (words, done)
        for fix in (fix for fix in fixes if not fix.endswith("DIR")):
            again = subprocess.run(fix, shell=True, cwd="/", env=omac.environment, capture_output=True, text=True)
            assert again.returncode == 0, (words, fix, again)
            shutil.rmtree(empty / ".agents", ignore_errors=True)
