"""domain/harness/table.py: the coding agents that omac knows, and the refusal of a name that none has."""

import pytest

from omac.domain.harness.harness import Harness
from omac.domain.harness.names import HAS_HOOK, NAMES
from omac.domain.harness.table import DEFAULT_HARNESS, HARNESSES, harness_named
from omac.domain.kernel.refusal import Refusal


def test_each_module_agrees_with_its_line() -> None:
    """A module has the name of its harness, and the line says whether it has a hook."""
    assert tuple(harness.name for harness in HARNESSES) == NAMES
    assert {harness.name: harness.hook is not None for harness in HARNESSES} == HAS_HOOK


@pytest.mark.parametrize("harness", HARNESSES)
def test_every_name_and_alias_leads_to_its_harness(harness: Harness) -> None:
    """Each name and each alias leads to one harness, since all of them are unique."""
    for name in (harness.name, *harness.aliases):
        assert harness_named(name) is harness
    names = [name for entry in HARNESSES for name in (entry.name, *entry.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["", "emacs", "OpenCode"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    """The refusal of an unknown name lists the known ones, with their aliases."""
    with pytest.raises(Refusal, match="opencode or oc, claude or claude-code or cc") as caught:
        harness_named(name)
    assert caught.value.reason == "misuse"
    listed = caught.value.message.rpartition("known are: ")[2].replace(", ", " or ").split(" or ")
    assert listed == [known for harness in HARNESSES for known in (harness.name, *harness.aliases)]
    assert DEFAULT_HARNESS.name == "opencode"
