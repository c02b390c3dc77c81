"""The argument vector that is executed for a sidecar, with the program found and the port filled in."""

import os
import re
from collections.abc import Mapping

from omac.adapters.linux import host_programs
from omac.domain.kernel.refusal import quoted
from omac.domain.sidecars.sidecar import SidecarSpec
from omac.services.ports import SpawnFailed

PORT_WORD = "${SIDECAR_PORT}"


def argv(spec: SidecarSpec, folder: str, port: int, environment: Mapping[str, str]) -> list[str]:
    """The sidecar's argv; its first element is an absolute path to a program that may be executed.

    A name with a slash is taken from `folder`, where it runs, a bare one from PATH of the sidecar's own environment.
    Raises SpawnFailed.
    """
    if not os.path.isdir(folder):
        raise SpawnFailed(f"the skill's folder {folder} is not there; restore it, then reload the directory")
    words = [word.replace(PORT_WORD, str(port)) for word in spec.command]
    if words and words[0].startswith("/"):
        words[0] = os.path.normpath(words[0])
    if folder != spec.source:  # an absolute path of its own folder means the copy: what lies there may be another's
        own = "|".join(re.escape(source) for source in (spec.source, spec.copied_from) if source)
        words = [re.sub(rf"(?:{own})(?![\w.-])", lambda _: folder, word) for word in words]
    if not words or not words[0]:
        raise SpawnFailed(f"skill {spec.skill} names no program; set sidecar.command in {spec.source}/omac.yaml")
    if "/" in words[0]:
        return [_in_folder(folder, spec.source, words[0]), *words[1:]]
    return [_on_path(spec.source, words[0], environment), *words[1:]]


def _in_folder(folder: str, source: str, word: str) -> str:
    path = os.path.normpath(os.path.join(folder, word))
    if not os.path.isfile(path):
        raise SpawnFailed(f"{path} is not there or not a file; correct sidecar.command in {source}/omac.yaml")
    if not os.access(path, os.X_OK):
        live = os.path.normpath(os.path.join(source, word))
        raise SpawnFailed(f"{path} is not executable; run: chmod +x {quoted(live)}, then approve the skill again")
    return path


def _on_path(source: str, name: str, environment: Mapping[str, str]) -> str:
    if program := host_programs.on_path(name, environment.get("PATH", os.defpath)):
        return program
    raise SpawnFailed(
        f"{name} is not on the sidecar's PATH ({environment.get('PATH', os.defpath)}); "
        f"install it, or give its full path as sidecar.command in {source}/omac.yaml"
    )
