"""The documents agree with the code: what they name exists, what they draw is drawn from the tables."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from omac.domain.directories import directory
from omac.domain.kernel import run
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import REASONS
from omac.domain.sandbox import launch
from omac.domain.settings.settings import SETTINGS
from omac.domain.sidecars import sidecar
from omac.journal.event_kinds import KIND_OF, KINDS

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
FOLDERS = "domain|journal|projections|services|adapters|tools|tests|examples"


def diagram(table: Mapping[tuple[str, type[Event]], str]) -> str:
    """A transition table as a Mermaid state diagram; events that leave the state as it is are left out."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in table.items():
        if before != after:
            arrows.setdefault((before, after), []).append(KIND_OF[event].partition(".")[2])
    lines = [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


@pytest.mark.parametrize(
    "table",
    [directory.TABLE, sidecar.TABLE, run.TABLE, launch.TABLE],
    ids=["directory", "sidecar", "run", "sandbox"],
)
def test_state_diagrams_are_drawn_from_the_tables(table: Mapping[tuple[str, type[Event]], str]) -> None:
    """A diagram in ARCHITECTURE.md is the transition table, line by line."""
    assert diagram(table) in ARCHITECTURE, f"ARCHITECTURE.md should contain:\n{diagram(table)}"


@pytest.mark.parametrize("status", [directory.Status, sidecar.Status, run.Status, launch.Status])
def test_states_are_spelled_with_underscores(status: object) -> None:
    """A state is the same word in JSON, in a table and in a diagram; hyphens are for kinds of events and reasons."""
    assert [state for state in get_args(status) if not re.fullmatch(r"[a-z_]+", state)] == []


def test_every_file_that_is_named_exists() -> None:
    """A path in ARCHITECTURE.md, README.md or SECURITY.md leads somewhere."""
    for document in ("ARCHITECTURE.md", "README.md", "SECURITY.md"):
        for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", (ROOT / document).read_text()):
            assert (ROOT / path).exists(), f"{document} names {path}"


def test_every_function_on_the_walks_is_in_its_file() -> None:
    """In ARCHITECTURE.md, `path.py: Name.method` means that this file defines that class and that method."""
    walked = re.findall(rf"`((?:{FOLDERS})/[\w/]+\.py): ([\w.]+)`", ARCHITECTURE)
    assert len(walked) > 20, "both walks are there"
    for path, dotted in walked:
        source = (ROOT / path).read_text()
        for part in dotted.split("."):
            defined = rf"(?m)^\s*(?:async )?(?:def|class) {part}\b|^{part}\b.*="
            assert re.search(defined, source), f"{path} does not define {part}"


def test_every_event_that_is_named_is_registered() -> None:
    """An event's name in the documents is the name of a kind."""
    aggregates = {kind.partition(".")[0] for kind in KINDS}
    for document in ("ARCHITECTURE.md", "README.md", "SECURITY.md"):
        for kind in re.findall(r"`([a-z]+\.[a-z]+(?:-[a-z]+)*)`", (ROOT / document).read_text()):
            if kind.partition(".")[0] in aggregates and not kind.endswith((".py", ".md")) and kind not in SETTINGS:
                assert kind in KINDS, f"{document} names {kind}"


def test_every_reason_in_the_readme_exists() -> None:
    """The table of reasons in the README lists reasons that omac gives, with the status it gives them."""
    rows = re.findall(r"(?m)^\| (\d{3}) \| `([a-z-]+)` \|", (ROOT / "README.md").read_text())
    assert len(rows) >= 8
    for status, reason in rows:
        assert REASONS[reason].status == int(status), reason


def test_every_setting_is_in_the_readme() -> None:
    """With the words it takes, the default first; `confine` is told apart."""
    readme = (ROOT / "README.md").read_text()
    for setting in SETTINGS.values():
        words = [word for word in (setting.default, *setting.words) if word != "confine"]
        shown = ", ".join(f"`{word}`" for word in dict.fromkeys(words)) if setting.words else "absolute paths"
        assert f"| `{setting.name}` | {shown} |" in readme, setting.name
