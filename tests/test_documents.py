"""The documents agree with the code: named things exist, and drawn diagrams are those of the tables."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from omac.domain.access import exchange
from omac.domain.directories import directory
from omac.domain.kernel import run
from omac.domain.kernel.event import Event
from omac.domain.kernel.refusal import REASONS
from omac.domain.sandbox import launch
from omac.domain.settings.settings import SETTINGS
from omac.domain.sidecars import sidecar
from omac.journal.event_kinds import KIND_OF, KINDS

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted((*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")))
}
LINES_MAX = {"README.md": 150, "ARCHITECTURE.md": 120, "SECURITY.md": 170}  # each is read in one sitting
COLUMNS_MAX = 120
NUMBERS = {"two": 2, "three": 3, "four": 4}
FILES_MAX = {  # that a common change may touch, beside tests
    "event of an existing aggregate": 2,
    "sandbox option": 4,
    "control command": 3,
    "aggregate": 4,
}
FOLDERS = "domain|journal|projections|services|adapters|tools|tests|examples"


def diagram(table: Mapping[tuple[str, type[Event] | str], str]) -> str:
    """Return a transition table as a Mermaid state diagram, without events that leave the state unchanged."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in table.items():
        if before != after:
            kind = event if isinstance(event, str) else KIND_OF[event].partition(".")[2]
            arrows.setdefault((before, after), []).append(kind)
    lines = [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


@pytest.mark.parametrize(
    "table",
    [directory.TABLE, sidecar.TABLE, run.TABLE, launch.TABLE, exchange.TABLE],
    ids=["directory", "sidecar", "run", "sandbox", "exchange"],
)
def test_state_diagrams_are_drawn_from_the_tables(table: Mapping[tuple[str, type[Event] | str], str]) -> None:
    """A diagram in docs/walks.md is the transition table, line by line."""
    assert diagram(table) in DOCUMENTS["docs/walks.md"], f"docs/walks.md should contain:\n{diagram(table)}"


@pytest.mark.parametrize("status", [directory.Status, sidecar.Status, run.Status, launch.Status, exchange.Status])
def test_states_are_spelled_with_underscores(status: object) -> None:
    """A state is the same word in JSON, in a table and in a diagram; hyphens are for kinds of events and reasons."""
    assert [state for state in get_args(status) if not re.fullmatch(r"[a-z_]+", state)] == []


def test_every_file_that_is_named_exists() -> None:
    """A path in a document leads somewhere."""
    for document, text in DOCUMENTS.items():
        for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", text):
            assert (ROOT / path).exists(), f"{document} names {path}"


def test_every_function_that_is_named_is_in_its_file() -> None:
    """`path.py: Name.method` means that this file defines that class and that method."""
    for document in DOCUMENTS:
        for path, dotted in functions_in(document):
            source = (ROOT / path).read_text()
            for part in dotted.split("."):
                defined = rf"(?m)^\s*(?:async )?(?:def|class) {part}\b|^{part}\b.*="
                assert re.search(defined, source), f"{document}: {path} does not define {part}"


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "docs/walks.md"])
def test_walks_name_functions(document: str) -> None:
    """A document that follows a request has names that can be searched for."""
    assert len(functions_in(document)) > 20, "the walks are there"


def functions_in(document: str) -> list[tuple[str, str]]:
    """Return each `path.py: Name.method` of a document."""
    return re.findall(rf"`((?:{FOLDERS})/[\w/]+\.py): ([\w.]+)`", DOCUMENTS[document])


def test_every_event_that_is_named_is_registered() -> None:
    """An event's name in the documents is the name of a kind."""
    aggregates = {kind.partition(".")[0] for kind in KINDS}
    for document, text in DOCUMENTS.items():
        for kind in re.findall(r"`([a-z]+\.[a-z]+(?:-[a-z]+)*)`", text):
            if (
                kind.partition(".")[0] in aggregates
                and not kind.endswith((".py", ".md", ".txt"))
                and kind not in SETTINGS
            ):
                assert kind in KINDS, f"{document} names {kind}"


def test_common_changes_touch_few_files() -> None:
    """Each list of CONTRIBUTING.md names as many files as its heading, and no more than the bound."""
    sections = re.findall(
        r"^### An? (.+?) \((\w+) files[^\n]*\n(.*?)(?=^##)", DOCUMENTS["CONTRIBUTING.md"], re.M | re.S
    )
    counted = {}
    for change, number, text in sections:
        items = re.findall(r"^\d+\. (.+)", text, re.M)
        files = [item for item in items if not item.startswith(("If ", "Tests", "What enforces it, if"))]
        assert len(files) == NUMBERS[number], change
        assert all((ROOT / path).exists() for item in files for path in re.findall(r"^`([^`:]+)`", item)), change
        counted[change] = len(files)
    assert {name: count for name, count in counted.items() if count > FILES_MAX[name]} == {}
    assert counted.keys() == FILES_MAX.keys()


def test_every_link_leads_somewhere() -> None:
    """A link to another document names a file of the repository and, behind #, a heading of it."""
    for document, text in DOCUMENTS.items():
        for path, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
            target = (ROOT / document).parent / path if path else ROOT / document
            assert target.exists(), f"{document} links to {path}"
            headings = [line.lstrip("# ").lower().replace(" ", "-") for line in target.read_text().splitlines()]
            assert not heading or heading in headings, f"{document} links to {path}#{heading}"


def test_documents_are_short_enough_to_read() -> None:
    """A line fits an editor, and the main documents fit one sitting."""
    for document, text in DOCUMENTS.items():
        lines = text.splitlines()
        assert len(lines) <= LINES_MAX.get(document, len(lines)), document
        long = [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]
        assert not long or document == "CHANGELOG.md", f"{document}: lines {long}"


def test_every_reason_that_skills_can_meet_exists() -> None:
    """The table of the facade's answers lists the reasons that omac gives, with the status it gives them."""
    rows = re.findall(r"(?m)^\| (\d{3}) \| `([a-z-]+)` \|", DOCUMENTS["docs/skills.md"])
    sources = [
        file.read_text() for folder in ("adapters/facade", "services/access") for file in (ROOT / folder).glob("*.py")
    ]
    given = set(re.findall(r'Refusal\(\s*"([a-z-]+)"', "\n".join(sources)))
    elsewhere = {"state-unusable", "prerequisite-missing", "stopping"}  # of a disk, a library, an end of omac
    assert (given | elsewhere) - {"checkpoint-contested"} <= {reason for _, reason in rows}
    for status, reason in rows:
        assert REASONS[reason].status == int(status), reason


def test_every_setting_is_in_the_reference() -> None:
    """A setting is listed with its words, the default first; `confine` is described apart."""
    reference = DOCUMENTS["docs/reference.md"]
    for setting in SETTINGS.values():
        words = [word for word in (setting.default, *setting.words) if word != "confine"]
        values = ", ".join(f"`{word}`" for word in dict.fromkeys(words)) if setting.words else "absolute paths"
        if setting.numbers is not None:
            values += ", a number" if not setting.numbers.by_skill else ", numbers"
        assert f"| `{setting.name}` | {values} |" in reference, setting.name
