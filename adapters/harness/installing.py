"""The changes of `omac bridge` to the files of agents: finding omac's hooks, inserting them, and removing them."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from omac.adapters.files.json_text import MARK, WHITESPACE, Insertion, JsonText, inserted, restored
from omac.adapters.harness import hook_text
from omac.adapters.harness.plugin_text import plugin_state
from omac.adapters.harness.settings_file import AgentFile, OpenedFile, digest_of, invalid, opened
from omac.domain.harness.harness import Hook
from omac.domain.harness.installation import BridgeChangeRequested, InstallationState
from omac.domain.kernel.refusal import Refusal, quoted


class BridgeFile(NamedTuple):
    """A file by which an agent calls omac: settings with hooks, for which `hook` says how and `commands` what is called
    for each event; or, where `plugin` is a text, a file with that plugin alone."""

    harness: str
    file: AgentFile
    commands: Mapping[str, str]
    hook: Hook | None = None
    plugin: str = ""


class BridgeFinding(NamedTuple):
    """The hooks of omac in a file: the state of each, and notes for a person about the file."""

    states: Mapping[str, str]
    notes: tuple[str, ...] = ()


class PlannedFile(NamedTuple):
    """A change that is certain and not made yet. `after` None: the file goes."""

    request: BridgeChangeRequested
    present: str
    opened: OpenedFile
    after: bytes | None
    folders: tuple[str, ...]

    def write(self) -> None:
        """Make the change. Raises OSError, Refusal."""
        if self.after is None:
            self.opened.remove(self.folders)
        else:
            self.opened.replace(self.after)


# Of the hooks that a file shall have, from those that it has, and whether the write guard was put there by itself
Choice = Callable[[Collection[str], bool], Collection[str]]


def find(bridge: BridgeFile) -> BridgeFinding:
    """Return what a file has of omac. Raises Refusal: settings-invalid, state-unusable, contention."""
    with opened(bridge.file) as file:
        return _inspect(bridge, file.text())


@contextmanager
def planned(bridge: BridgeFile, choice: Choice, state: InstallationState) -> Iterator[PlannedFile | None]:
    """The change by which a file has the hooks of a choice and no others; None if it has. `state` is what omac put
    there before. The file is locked meanwhile. Raises Refusal: settings-invalid, state-unusable, contention."""
    with opened(bridge.file) as file:
        text = file.text()
        states = _inspect(bridge, text).states
        events = tuple(event for event in bridge.commands if event in choice(states, state.keeps_guard))
        if states == dict.fromkeys(events, "current"):
            yield None
            return
        earlier = state.before(file.digest)
        made = earlier.made if earlier and earlier.made and text is not None else file.file.missing()
        base = _base(bridge, text, file.digest, earlier)
        insertions = _insertions(bridge, base, events)
        after = inserted(base, insertions)
        _check(bridge, after, base, events)
        goes = not events and bool(made) and _is_empty(base)
        content = None if goes else after.encode()
        recorded = insertions if bridge.hook else []  # a plugin is known by its digest
        change = BridgeChangeRequested(
            bridge.harness, file.file.path, events, digest_of(content), tuple(at for at, _ in recorded),
            tuple(part for _, part in recorded), made if events else (),
        )  # fmt: skip
        yield PlannedFile(change, file.digest, file, content, made[1:])


def _inspect(bridge: BridgeFile, text: str | None) -> BridgeFinding:
    if text is None or not text.strip(WHITESPACE + MARK):
        return BridgeFinding({})
    if bridge.hook is None:
        state = plugin_state(text, bridge.plugin)
        if state == "foreign":
            fix = [f"mv {quoted(bridge.file.path)} {quoted(bridge.file.path)}.mine"]
            raise Refusal("settings-invalid", f"{bridge.file.path} is no file of omac's", fix=fix)
        return BridgeFinding(dict.fromkeys(bridge.commands, state))
    with _reading(bridge):
        states = hook_text.states(text, bridge.commands, bridge.hook.matcher)
        notes = []
        if hook_text.is_off(text, bridge.hook.off_switch):
            notes.append(f"sets {bridge.hook.off_switch}: no hook runs until you remove that")
        unread = sorted(JsonText(text).additions)
        if text.startswith(MARK) and not bridge.hook.reads_mark:
            unread.append("a byte order mark")
        if unread:
            listed = " and ".join(unread)
            notes.append(f"has {listed}: {bridge.harness} ignores such a file, and omac's hooks in it")
        return BridgeFinding(states, tuple(notes))


def _base(bridge: BridgeFile, text: str | None, digest: str, earlier: BridgeChangeRequested | None) -> str:
    """The text without anything of omac."""
    if text is None or not text.strip(WHITESPACE + MARK):
        return text or ""
    if bridge.hook is None:
        if plugin_state(text, bridge.plugin) == "changed":
            message = f"{bridge.file.path} is omac's plugin, changed by hand since; omac leaves it as it is"
            raise Refusal("settings-invalid", message, fix=[f"rm {quoted(bridge.file.path)}"])
        return ""
    if (
        earlier
        and earlier.digest == digest
        and (base := restored(text, zip(earlier.offsets, earlier.texts, strict=True))) is not None
    ):
        return base
    with _reading(bridge):
        return hook_text.without_hooks(text, earlier.texts if earlier else ())


def _insertions(bridge: BridgeFile, base: str, events: Collection[str]) -> list[Insertion]:
    if not events:
        return []
    if bridge.hook is None:
        return [(0, bridge.plugin)]
    wanted = {event: bridge.commands[event] for event in events}
    if base.strip(WHITESPACE + MARK):
        with _reading(bridge):
            return hook_text.with_hooks(base, wanted, bridge.hook.matcher)
    empty = "{}\n"
    insertions = hook_text.with_hooks(empty, wanted, bridge.hook.matcher)
    return [(len(MARK) if base.startswith(MARK) else 0, inserted(empty, insertions))]


def _check(bridge: BridgeFile, after: str, base: str, events: Collection[str]) -> None:
    """Raise Refusal (settings-invalid) where the new text would not say what it shall, or something else differs."""
    if bridge.hook is None:
        return
    with _reading(bridge):
        states, has_text = _inspect(bridge, after).states, base.strip(WHITESPACE + MARK)
        if states != dict.fromkeys(events, "current") or (has_text and not hook_text.is_same(after, base)):
            raise ValueError("they are written in a way that omac cannot change without harm")


def _is_empty(base: str) -> bool:
    if not base.strip(WHITESPACE + MARK):
        return True
    whole = JsonText(base)
    return not whole.additions and whole.value(whole.root) == {}


@contextmanager
def _reading(bridge: BridgeFile) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        problem = f"is not valid JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        raise invalid(bridge.file, problem) from None
    except RecursionError:
        raise invalid(bridge.file, "is nested too deep") from None
    except ValueError as error:
        raise invalid(bridge.file, f"cannot be used: {error}") from None
