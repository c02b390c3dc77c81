"""domain/skills/scope.py: the scope of a skill, and the flags that mean it."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pasting import words_of

from omac.domain.harness.table import HARNESSES
from omac.domain.kernel import ids
from omac.domain.skills.scope import SkillScope

PATHS = st.binary(max_size=30).map(lambda rest: os.fsdecode(b"/" + rest.replace(b"\0", b"")))


@pytest.mark.parametrize(
    ("scope", "flags", "shown"),
    [
        (SkillScope("/w/shop"), "--workdir /w/shop --harness opencode", "/w/shop"),
        (SkillScope("/w/my shop"), "--workdir '/w/my shop' --harness opencode", "/w/my shop"),
        (SkillScope("/w/$(id)"), "--workdir '/w/$(id)' --harness opencode", "/w/$(id)"),
        (SkillScope("/w/it's"), """--workdir '/w/it'"'"'s' --harness opencode""", "/w/it's"),
        (SkillScope("/w/shop", "opencode"), "--workdir /w/shop --harness opencode", "/w/shop"),
        (SkillScope("/w/shop", "claude"), "--workdir /w/shop --harness claude", "/w/shop"),
        (SkillScope(""), "--global --harness opencode", "all projects"),
        (SkillScope("", "codex"), "--global --harness codex", "all projects"),
    ],
)
def test_flags_and_text_of_a_scope(scope: SkillScope, flags: str, shown: str) -> None:
    """A scope has flags for a command, and a text for the user."""
    assert (scope.flags, scope.shown) == (flags, shown)


@settings(deadline=None)
@given(PATHS, st.sampled_from([harness.name for harness in HARNESSES]))
def test_flags_can_be_pasted(path: str, harness: str) -> None:
    """A shell splits the flags into just these words, whatever the directory is called."""
    words = words_of(SkillScope(path, harness).flags)
    assert words[:2] == ["--workdir", path]
    assert words[2:] in ([], ["--harness", harness])


def test_the_scope_is_that_of_the_directory() -> None:
    """The scope is the directory's, whatever the harness is; shared skills have one scope."""
    for harness in HARNESSES:
        assert SkillScope("/w/shop", harness.name).scope == ids.workdir_id("/w/shop")
        assert SkillScope("", harness.name).scope == ids.GLOBAL
    assert ids.workdir_id("") != ids.GLOBAL
    assert SkillScope("/w/shop").scope != SkillScope("/w/shop-2").scope
