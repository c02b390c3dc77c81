"""services/sandbox/hidden.py: the search for files to hide, and the effects of an incomplete one."""

from pathlib import Path

import pytest

from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import DENY, READ, WRITE, Entry
from omac.domain.sandbox.hidden_names import HiddenNames
from omac.services.sandbox.hidden import HiddenSearch
from omac.tools.compose.sandbox_ports import SandboxAdapters

PORTS = SandboxAdapters({"HOME": "/"}, print)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with more files deep down than a search reads, and a secret near its top."""
    for number in range(30):
        (tmp_path / "node_modules" / f"p{number}").mkdir(parents=True)
        (tmp_path / "node_modules" / f"p{number}" / ".env").touch()
    (tmp_path / "zz").mkdir()
    (tmp_path / "zz" / ".env").touch()
    return tmp_path


def test_files_near_the_top_are_hidden_first(project: Path) -> None:
    """A search that finds too many files hides those near the top, and warns that the others can be read."""
    search = HiddenSearch(HiddenNames(), PORTS, entries_max=35)
    search.search(str(project))
    hidden = search.entries([Entry(str(project), WRITE, "")], (), ())
    assert f"{project}/zz/.env" in {entry.path for entry in hidden}
    assert search.warnings()[1:] == [f"{project} has more than 35 files: .env files among the rest can be read"]


def test_a_pattern_is_searched_for_everywhere_or_refused(project: Path) -> None:
    """A denied name is searched for everywhere; in a folder with too many files, --deny-name is refused."""
    with pytest.raises(Refusal, match="too many for --deny-name") as caught:
        HiddenSearch(HiddenNames(patterns=["*.pem"]), PORTS, entries_max=10).search(str(project))
    assert caught.value.reason == "policy-too-large"
    assert HiddenSearch(HiddenNames(patterns=["*.pem"]), PORTS).search(str(project)).complete


def test_denied_and_searched_folders_are_left_out(project: Path) -> None:
    """A readable folder is searched once, without the denied folders in it, and not at all where no file is hidden."""
    entries = [Entry(str(project), READ, ""), Entry(f"{project}/node_modules", DENY, "")]
    search = HiddenSearch(HiddenNames(), PORTS)
    search.readable(entries, [entries[0], Entry(f"{project}/zz", READ, "")])
    assert list(search.found) == [str(project)]
    assert [entry.path for entry in search.entries(entries, (), ())] == [f"{project}/zz/.env"]
    nothing = HiddenSearch(HiddenNames(env_files=False), PORTS)
    nothing.readable(entries, entries)
    assert nothing.found == {}
