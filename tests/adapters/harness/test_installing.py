"""adapters/harness/installing.py: omac's hooks are added to settings and removed, and no byte of others is lost."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from adapters.files.commented_json import BLANKS, VALUES, commented
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from omac.adapters.files.json_text import JsonText
from omac.adapters.harness import hook_text
from omac.adapters.harness.installing import BridgeFile, Choice, find, planned
from omac.adapters.harness.settings_file import AgentFile
from omac.domain.harness.claude import HARNESS
from omac.domain.harness.installation import AGGREGATE, InstallationState, ReportInstalled, RequestInstallation
from omac.domain.harness.names import BEGUN, ENDED, GUARDED
from omac.domain.kernel.refusal import Refusal

EVENTS = (GUARDED, BEGUN, ENDED)
COMMANDS = hook_text.commands("/o/omac")
GROUP = {"hooks": [{"type": "command", "command": "theirs"}]}
STEPS: dict[str, Choice] = {
    "all": lambda _, __: EVENTS, "none": lambda _, __: (), "guard": lambda present, _: {*present, GUARDED}
}  # fmt: skip


class Installed:
    """A settings file below a folder, and the recorded state of its installation."""

    def __init__(self, folder: Path, program: str = "/o/omac") -> None:
        assert HARNESS.hook is not None
        self.path = folder / ".claude" / "settings.json"
        self.file = AgentFile(str(self.path.parent), self.path.name, of_project=False)
        self.one = BridgeFile("claude", self.file, hook_text.commands(program), HARNESS.hook)
        self.state = InstallationState()

    def write(self, content: bytes) -> None:
        """Write this content to the file."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(content)

    def change(self, choice: Choice) -> bool:
        """Change the hooks of the file as the use case does."""
        with planned(self.one, choice, self.state) as change:
            if change is None:
                return False
            for command in (RequestInstallation(change.request, change.present), ReportInstalled()):
                if isinstance(command, ReportInstalled):
                    change.write()
                for event in AGGREGATE.decide(command, self.state):
                    self.state = AGGREGATE.evolve(self.state, event)
            return True

    def install(self) -> bool:
        """Install all hooks."""
        return self.change(STEPS["all"])

    def uninstall(self) -> bool:
        """Remove all hooks."""
        return self.change(STEPS["none"])

    def states(self) -> dict[str, str]:
        """Return the state of each of omac's hooks in the file."""
        return dict(find(self.one).states)


@st.composite
def stated(draw: st.DrawFn) -> str:
    """Draw settings as people have them: with or without hooks, own ones before and after, comments, odd spaces."""

    def blank() -> str:
        return draw(BLANKS)

    members = [f'"k{i}": {draw(commented(1))}' for i in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        events = []
        for event in draw(st.lists(st.sampled_from([*EVENTS, "Stop"]), unique=True)):
            groups = [json.dumps(GROUP, indent=draw(st.sampled_from([None, 2, "\t"])))] * draw(st.integers(0, 2))
            events.append(f'{blank()}"{event}":{blank()}[{blank()}{f",{blank()}".join(groups)}{blank()}]{blank()}')
        hooks = f'"hooks":{blank()}{{{blank()}{",".join(events)}}}'
        members.insert(draw(st.integers(0, len(members))), hooks)
    end = draw(st.sampled_from(["", "," + blank()])) if members else blank()
    body = f",{blank()}".join(members)
    return draw(st.sampled_from(["", "\ufeff"])) + blank() + "{" + blank() + body + blank() + end + "}" + blank()


@pytest.mark.full
@settings(max_examples=examples(1000))
@given(
    stated() | st.sampled_from(["", "\n", "\ufeff", "{}", "{ }\r\n"]),
    st.lists(st.sampled_from(list(STEPS)), max_size=3),
)
def test_to_the_byte(tmp_path_factory: pytest.TempPathFactory, text: str, steps: list[str]) -> None:
    """Hooks installed in any order are in the file once, and the file is the same to the byte after their removal."""
    world = Installed(tmp_path_factory.mktemp("w"))
    before = text.encode()
    world.write(before)
    for step in (*steps, "all"):
        world.change(STEPS[step])
    assert world.states() == dict.fromkeys(EVENTS, "current")
    middle = world.path.read_bytes()
    assert not world.install()
    assert world.path.read_bytes() == middle
    assert world.uninstall()
    assert world.path.read_bytes() == before
    assert not world.uninstall()


@pytest.mark.full
@settings(max_examples=examples(1000))
@given(stated(), VALUES, st.booleans(), st.booleans())
def test_what_is_changed_meanwhile_stays(
    tmp_path_factory: pytest.TempPathFactory, text: str, value: Any, first: bool, known: bool
) -> None:
    """A member that a person adds after the installation stays, with the record of the installation and without it.

    No byte around a first member differs if the installation is on record.
    """
    world = Installed(tmp_path_factory.mktemp("w"))
    world.write(text.encode())
    world.install()
    after = world.path.read_bytes().decode()
    at = after.index("{") + 1 if first else after.rindex("}")
    whole = JsonText(after)
    if first:
        added = f'"mine": {json.dumps(value)},'
    elif whole.additions or not whole.root.children:
        return
    else:
        added = f', "mine": {json.dumps(value)}'
    world.write((after[:at] + added + after[at:]).encode())
    if not known:
        world.state = InstallationState()
    assert world.uninstall()
    rest = world.path.read_bytes().decode()
    assert "/o/omac" not in rest
    remaining = JsonText(rest)
    expected = JsonText(text)
    settings_after = remaining.value(remaining.root)
    assert settings_after.pop("mine") == value
    settings_before = expected.value(expected.root)
    if known and first and expected.root.children:
        assert rest.replace(added, "", 1) == text or rest.replace(added.removesuffix(","), "", 1) == text
    for side in (settings_after, settings_before):  # without a record, lists that were empty go with omac's hooks
        side["hooks"] = {event: groups for event, groups in side.get("hooks", {}).items() if groups or event == "Stop"}
    assert settings_after == settings_before


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        ('{\n  "model": "m"\n}\n', lambda text: text.replace('"m"', '"other"')),
        ('{\n  "model": "m" // mine\n}\n', lambda text: text.replace("// mine", "// my own")),
        ('{"hooks": {}}', lambda text: text.replace('{"hooks"', '{"model": "m", "hooks"', 1)),
        ('{"hooks": {"Stop": []}, "x": [1, 2]}', lambda text: text.replace("[1, 2]", "[1, 2, 3]")),
        ('{\r\n\t"hooks": {\r\n\t\t"PreToolUse": [ ]\r\n\t}\r\n}', lambda text: text.replace("\r\n}", "\r\n} ")),
        ('{\n  "hooks": {"PreToolUse": [\n    {"hooks": []}\n  ]},\n}', lambda text: "// new\n" + text),
        ("", lambda text: text.replace('"hooks"', '"model": "m", "hooks"', 1)),
    ],
)  # fmt: skip
def test_exactly_what_was_added_goes(tmp_path: Path, before: str, meanwhile: Any) -> None:
    """A person's change gives the same bytes with omac's hooks installed and removed as without them."""
    world = Installed(tmp_path)
    world.write(before.encode())
    world.install()
    after = world.path.read_bytes().decode()
    world.write(meanwhile(after).encode())
    assert world.path.read_bytes().decode() != after
    world.uninstall()
    rest = world.path.read_bytes().decode()
    if before:
        assert rest == meanwhile(before)
    else:
        assert json.loads(rest) == {"model": "m"}


def test_an_agent_that_writes_its_settings_anew(tmp_path: Path) -> None:
    """An agent may rewrite its settings in another form: omac's hooks are removed, and the agent's additions stay."""
    world = Installed(tmp_path)
    world.write(b'{"hooks": {"Stop": []}}')
    world.install()
    document = json.loads(world.path.read_text())
    world.write(json.dumps({"theme": "dark", **document}, indent=4).encode())
    assert world.states() == dict.fromkeys(EVENTS, "current")
    world.uninstall()
    assert json.loads(world.path.read_text()) == {"theme": "dark", "hooks": {"Stop": []}}


def test_no_file(tmp_path: Path) -> None:
    """A file and a folder that omac made are removed with its hooks, unless they hold other content."""
    world = Installed(tmp_path)
    assert not world.uninstall()
    assert world.install()
    assert world.path.stat().st_mode & 0o777 == 0o600
    assert world.path.parent.stat().st_mode & 0o777 == 0o700
    world.uninstall()
    assert os.listdir(tmp_path) == []
    world.install()
    (world.path.parent / "other").touch()
    world.uninstall()
    assert os.listdir(world.path.parent) == ["other"]
    world.install()
    world.write(json.dumps(json.loads(world.path.read_text())).encode())  # the same in another form
    world.uninstall()
    assert not world.path.exists()


def test_a_part_more_and_a_part_less(tmp_path: Path) -> None:
    """The write guard alone, all hooks, and all but the guard can be installed in turn; removal restores the file."""
    world = Installed(tmp_path)
    world.write(b'{\n\t"a": 1}')
    world.change(STEPS["guard"])
    assert world.states() == {GUARDED: "current"}
    world.install()
    world.change(lambda present, _: {*present} - {GUARDED})
    assert world.states() == {BEGUN: "current", ENDED: "current"}
    world.uninstall()
    assert world.path.read_bytes() == b'{\n\t"a": 1}'


def test_another_omac(tmp_path: Path) -> None:
    """Hooks of an omac elsewhere are outdated, and are renewed; a hook that was edited by hand counts as changed."""
    world = Installed(tmp_path, "/old place/omac")
    world.write(b"{}")
    world.install()
    newer = Installed(tmp_path)
    newer.state = world.state
    assert newer.states() == dict.fromkeys(EVENTS, "outdated")
    newer.install()
    assert newer.states() == dict.fromkeys(EVENTS, "current")
    assert "old place" not in newer.path.read_text()
    newer.write(newer.path.read_bytes().replace(b"Write|", b""))
    assert newer.states()[GUARDED] == "changed"
    newer.install()
    newer.uninstall()
    assert newer.path.read_bytes() in (b"{}", b"{}\n")


def test_an_omac_that_was_killed(tmp_path: Path) -> None:
    """An omac that is killed before it records the outcome can restore the file by the recorded request."""
    world = Installed(tmp_path)
    world.write(b'{ "hooks": { } }')
    with planned(world.one, STEPS["all"], world.state) as change:
        assert change is not None
        for event in AGGREGATE.decide(RequestInstallation(change.request, change.present), world.state):
            world.state = AGGREGATE.evolve(world.state, event)
        change.write()
    world.uninstall()
    assert world.path.read_bytes() == b'{ "hooks": { } }'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{\n  "a": 1,,\n}', "line 2, column 10"),
        (b"{", "line 1, column 2"),
        (b'{"a": 1} x', "line 1, column 10"),
        (b"[" * 100_000, "nested too deep"),
        (b"\xff", "UTF-8"),
        (b"[]", "the settings must be an object"),
        (b'{"hooks": []}', "hooks must be an object"),
        (b'{"hooks": {"SessionStart": {}}}', "hooks.SessionStart must be a list"),
        (b'{"hooks": {}, "hooks": {}}', "'hooks' twice"),
        (b'{"hooks": {"PreToolUse": [], "PreToolUse": []}}', "'PreToolUse' twice"),
    ],
)
def test_invalid_settings(tmp_path: Path, content: bytes, says: str) -> None:
    """Invalid settings are refused with the position of the error, stay as they are, and get no file beside them."""
    world = Installed(tmp_path)
    world.write(content)
    for step in (world.install, world.uninstall, world.states):
        with pytest.raises(Refusal) as caught:
            step()
        assert caught.value.reason == "settings-invalid"
        assert says in caught.value.message
        assert str(world.path) in caught.value.message
    assert world.path.read_bytes() == content
    assert os.listdir(world.path.parent) == [world.path.name]


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("{}", []),
        ("\ufeff{}", []),
        ("// c\n{}", ["has comments"]),
        ('{"a": 1,} // c', ["has comments and trailing commas"]),
        ('{"disableAllHooks": true}', ["sets disableAllHooks"]),
    ],
)
def test_what_an_agent_would_not_read(tmp_path: Path, text: str, notes: list[str]) -> None:
    """Notes report disabled hooks, and comments and trailing commas, for which Claude Code 2.1.329 ignores settings."""
    world = Installed(tmp_path)
    world.write(text.encode())
    actual = find(world.one).notes
    assert len(actual) == len(notes)
    assert all(note.startswith(beginning) for note, beginning in zip(actual, notes, strict=True))
