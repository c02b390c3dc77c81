"""The write guard in the settings of agents: called from there, or no longer."""

import os
from typing import NamedTuple

from omac.adapters.guard import calls
from omac.adapters.guard.write_target import top_level
from omac.adapters.harness import hook_settings
from omac.adapters.harness.hook_settings import HookFile as HookFile
from omac.domain.guard.guard import Unclear
from omac.domain.harness.harness import Hook
from omac.domain.kernel.refusal import Refusal

harness_with_hook = hook_settings.harness_with_hook
user_file = hook_settings.of_user


class Installed(NamedTuple):
    """What came of an installation: whether the file was changed, and whether it says that no hook runs."""

    changed: bool
    are_hooks_off: bool


def project_file(hook: Hook) -> HookFile:
    """Return the settings file of the project around the current directory. Raises Refusal (directory-missing)."""
    try:
        return hook_settings.of_project(hook, os.fsdecode(top_level(os.getcwdb())))
    except Unclear as problem:
        raise Refusal("directory-missing", f"the current directory: {problem}", fix=["pwd"]) from None


def install(file: HookFile, hook: Hook, program: str) -> Installed:
    """Have an agent call `program` before each call of a tool that writes. Raises Refusal."""
    command = calls.command(program)
    are_off = False

    def edit(text: str) -> str:
        nonlocal are_off
        after = calls.with_call(text, hook.matcher, command)
        are_off = calls.are_off(after, hook.off_switch)
        return after

    return Installed(hook_settings.change(file, edit, create=True), are_off)


def uninstall(file: HookFile) -> bool:
    """Have an agent no longer call the write guard; False where it did not. Raises Refusal."""
    return hook_settings.change(file, calls.without_calls, create=False)
