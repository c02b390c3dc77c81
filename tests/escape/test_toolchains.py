"""Toolchains that are installed in the home work inside where PATH names them, and show no credentials.

The twin of each is the same toolchain while PATH does not name it: nothing of it is there.
"""

import pytest
from real_sandbox import Box

SYSTEM = "/usr/bin:/bin"
SECRET = "correct-horse"
SCRIPT = "#!/bin/sh\ncat ~/{needs}\n"


@pytest.mark.parametrize(
    ("folder", "needs", "secret"),
    [
        (".cargo/bin", ".rustup/toolchains/stable/lib/x", ".cargo/credentials.toml"),
        (".cargo/bin", ".cargo/env", ".cargo/registry/x"),
        (".nvm/versions/node/v20/bin", ".nvm/nvm.sh", ".nvm/versions/node/v20/etc/npmrc"),
        (".pyenv/shims", ".pyenv/versions/3.12/lib/x", ".pyenv/versions/3.12/pip.conf"),
        (".bun/bin", ".bun/install/global/node_modules/x/y", ".bun/install/cache/x"),
        (".volta/bin", ".volta/tools/image/node/20/bin/node", ".volta/tools/image/node/20/etc/npmrc"),
        (".asdf/shims", ".asdf/installs/nodejs/20/bin/node", ".asdf/installs/nodejs/20/etc/npmrc"),
        (".rbenv/shims", ".rbenv/versions/3/lib/x", ".gem/credentials"),
        ("go/bin", "go/bin/other", "go/pkg/mod/private/x"),
        (".local/share/mise/shims", ".local/share/mise/installs/node/20/lib/x", ".local/share/mise/tracked/x"),
        (".sdkman/candidates/java/current/bin", ".sdkman/candidates/java/current/lib/x", ".sdkman/var/x"),
        ("miniconda3/bin", "miniconda3/lib/x", "miniconda3/.condarc"),
    ],
)
def test_a_toolchain_on_path(world: Box, folder: str, needs: str, secret: str) -> None:
    """A program calls a toolchain on PATH by name, with the files it needs; credentials beside it cannot be read."""
    world.give(world.home / needs, "needed\n", 0o644)
    world.give(world.home / secret, SECRET)
    world.give(world.home / folder / "tool", SCRIPT.format(needs=needs), 0o755)
    script = f"tool; cat ~/{secret} || true; touch ~/{folder}/x ~/{needs} 2>/dev/null && echo CHANGED; true"
    done = world.run("sh", "-c", script, extra={"PATH": f"{world.home}/{folder}:{SYSTEM}"})
    assert done.out == "needed\n", done
    without = world.run("sh", "-c", script, extra={"PATH": SYSTEM})
    assert without.out == ""


def test_programs_of_uv(world: Box) -> None:
    """A folder for programs of all kinds shows uv, its interpreters and its tools, but no other programs."""
    home = world.home
    python = world.give(home / ".local/share/uv/python/cpython-3.12/bin/python3.12", "#!/bin/sh\necho python\n", 0o755)
    tool = world.give(home / ".local/share/uv/tools/ruff/bin/ruff", f"#!{python}\n", 0o755)
    world.give(home / ".local/share/uv/credentials/credentials.toml", SECRET)
    world.give(home / ".local/share/uv/tools/ruff/uv-receipt.toml", SECRET)
    world.give(home / ".local/bin/uv", "#!/bin/sh\necho uv\n", 0o755)
    world.give(home / ".local/bin/private", f"#!/bin/sh\necho {SECRET}\n", 0o755)
    (home / ".local/bin/python3.12").symlink_to(python)
    (home / ".local/bin/ruff").symlink_to(tool)
    script = (
        "uv; python3.12; ruff; private; cat ~/.local/share/uv/credentials/*; cat ~/.local/share/uv/tools/ruff/*.toml;"
        " ls ~/.local/bin"
    )
    done = world.run("sh", "-c", script, extra={"PATH": f"{home}/.local/bin:{SYSTEM}"})
    assert done.out == "uv\npython\npython\npython3.12\nruff\nuv\n"


def test_a_toolchain_in_another_place(world: Box) -> None:
    """A toolchain is shown where its own variable points, and a program inside gets that variable."""
    moved = world.home / "opt/pyenv"
    world.give(moved / "versions/x", "needed\n", 0o644)
    world.give(moved / "shims/tool", '#!/bin/sh\ncat "$PYENV_ROOT/versions/x"\n', 0o755)
    extra = {"PATH": f"{moved}/shims:{SYSTEM}", "PYENV_ROOT": str(moved)}
    assert world.run("sh", "-c", "tool", extra=extra).out == "needed\n"
    too_much = {"PATH": f"{world.home}/x/bin:{SYSTEM}", "PYENV_ROOT": str(world.home)}
    world.give(world.home / "x/bin/tool", "#!/bin/sh\n", 0o755)
    assert world.run("ls", str(world.home), extra=too_much).out == "project\n"


def test_a_toolchain_that_an_agent_could_have_made(world: Box) -> None:
    """A toolchain in the project counts for nothing, nor does a link there that leads to one in the home."""
    world.give(world.home / ".nvm/versions/x", SECRET)
    world.give(world.home / ".nvm/bin/tool", "#!/bin/sh\n", 0o755)
    (world.workdir / "bin").symlink_to(world.home / ".nvm/bin")
    script = f"cat {world.home}/.nvm/versions/x; ls {world.home}"
    for extra in (
        {"PATH": f"{world.workdir}/bin:{SYSTEM}"},
        {"PATH": f"{world.workdir}/bin:{SYSTEM}", "NVM_DIR": str(world.workdir)},
    ):
        assert world.run("sh", "-c", script, extra=extra).out == "project\n"


def test_what_a_person_says_of_it_stays(world: Box) -> None:
    """A denial hides a toolchain; a grant of its folder shows all of it, credentials included."""
    world.give(world.home / ".pyenv/versions/3.12/pip.conf", SECRET)
    world.give(world.home / ".pyenv/shims/tool", "#!/bin/sh\n", 0o755)
    extra = {"PATH": f"{world.home}/.pyenv/shims:{SYSTEM}"}
    pyenv = f"{world.home}/.pyenv"
    script = f"cat {pyenv}/versions/3.12/pip.conf; ls {pyenv}"
    assert world.run("sh", "-c", script, options=("--deny", pyenv), extra=extra).out == ""
    assert world.run("sh", "-c", script, options=("--read", pyenv), extra=extra).out == f"{SECRET}shims\nversions\n"
    assert world.run("sh", "-c", script, options=("--read", str(world.home)), extra=extra).out == "shims\nversions\n"
