"""Toolchains that people install in their home: where each lies, and what of it a program in a sandbox may read."""

from __future__ import annotations

from omac.domain.kernel import PlainData


class Toolchain(PlainData):
    """A toolchain that is shown where PATH names a folder in it.

    `root` is relative to the home; `variable` may name another place for it. `parts` of it are shown, all of it where
    there are none; `masked` are patterns of files in it that may hold credentials. `companions` are other toolchains'
    roots that it does not work without.
    """

    root: str
    variable: str = ""
    parts: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()


# `bin` of these is for programs of all kinds, and what lies beside it is not their installation.
SHARED_BIN = ".local/bin"
SHARED_PROGRAMS = ("mise", "uv", "uvx")  # of SHARED_BIN; a link there into a toolchain is shown with that

TOOLCHAINS = (
    Toolchain(".cargo", "CARGO_HOME", parts=("bin", "env"), companions=(".rustup",)),
    Toolchain(".rustup", "RUSTUP_HOME"),
    Toolchain(".nvm", "NVM_DIR", masked=("versions/node/*/etc/npmrc",)),
    Toolchain(".volta", "VOLTA_HOME", masked=("tools/image/node/*/etc/npmrc",)),
    Toolchain(".local/share/fnm", "FNM_DIR", masked=("node-versions/*/installation/etc/npmrc",)),
    Toolchain(".fnm", masked=("node-versions/*/installation/etc/npmrc",)),
    Toolchain(".npm-global", masked=("etc/npmrc",)),
    Toolchain(".bun", "BUN_INSTALL", parts=("bin", "install/global")),
    Toolchain(".deno", "DENO_INSTALL", parts=("bin",)),
    Toolchain(".pyenv", "PYENV_ROOT", masked=("versions/*/pip.conf", "versions/*/envs/*/pip.conf")),
    Toolchain(".local/share/uv", parts=("python", "tools"), masked=("tools/*/uv-receipt.toml", "tools/*/pip.conf")),
    Toolchain(".local/share/pipx", parts=("venvs", "py", "shared"), masked=("venvs/*/pip.conf",)),
    Toolchain(".local/pipx", parts=("venvs", "py", "shared"), masked=("venvs/*/pip.conf",)),
    Toolchain(".local/share/pypoetry", parts=("venv",)),
    *(Toolchain(root, masked=("pip.conf", ".condarc", "envs/*/pip.conf")) for root in ("miniconda3", "anaconda3")),
    *(Toolchain(root, masked=("pip.conf", ".condarc", "envs/*/pip.conf")) for root in ("miniforge3", "mambaforge")),
    Toolchain(".asdf", "ASDF_DATA_DIR", masked=("installs/nodejs/*/etc/npmrc", "installs/python/*/pip.conf")),
    Toolchain(
        ".local/share/mise",
        "MISE_DATA_DIR",
        parts=("installs", "plugins", "shims"),
        masked=("installs/node/*/etc/npmrc", "installs/python/*/pip.conf"),
    ),
    Toolchain(".rbenv", "RBENV_ROOT"),
    Toolchain(".nodenv", "NODENV_ROOT", masked=("versions/*/etc/npmrc",)),
    Toolchain(".goenv", "GOENV_ROOT"),
    Toolchain(".jenv", "JENV_ROOT"),
    Toolchain(".sdkman", "SDKMAN_DIR", parts=("bin", "candidates", "etc", "src", "libexec")),
    Toolchain("go", "GOPATH", parts=("bin",)),
    Toolchain("sdk"),
    Toolchain(".ghcup", parts=("bin", "ghc", "cache")),
    Toolchain(".opam", "OPAMROOT"),
    Toolchain(".dotnet", "DOTNET_ROOT"),
)
WITH_SHARED_BIN = (".local/share/uv", ".local/share/pipx", ".local/pipx", ".local/share/pypoetry", ".local/share/mise")
