import os
from pathlib import Path

import pytest

from omac.adapters.skills.allowance import YamlAllowance
from omac.adapters.skills.guide_file import read_guide
from omac.domain.skills.meta import Guide


def guide_of(folder: Path) -> Guide | None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_guide(fd, str(folder), "echo", YamlAllowance())
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"---\nname: echo\ndescription: d\n---\n", None),
        (b"---\nname: echo\ndescription: d\n---", None),
        (b"\xef\xbb\xbf---\r\nname: echo\r\ndescription: d\r\n---\r\ntext\xff", None),
        (b"--- \nname: echo\ndescription: >-\n  d\n---  \n---\n", None),
        (b"", ", line 1: has no front matter"),
        (b"# Echo\n---\nname: echo\n---\n", ", line 1: has no front matter"),
        ("---\nname: echo\n---\n".encode("utf-16"), ", line 1: is not UTF-8"),
        ("---\nname: echo\n---\n".encode("utf-16-le"), ", line 1: is not UTF-8"),
        (b"caf\xe9\n---\nname: echo\n---\n", ", line 1: is not UTF-8"),
        (b"----\nname: echo\n----\n", ", line 1: has no front matter"),
        (b"---\nname: echo\n", ", line 1: has front matter without an end"),
        (b"---\nname: echo\n ---\n", ", line 1: has front matter without an end"),
        (b"---\n---\n", ": must be a mapping"),
        (b"---\n- a\n---\n", ", line 2: must be a mapping"),
        (b"---\nname: [\n---\n", ", line 3: is not valid YAML"),
        (b"---\nname: *a\n---\n", ", line 2: is not valid YAML: found undefined alias"),
        (b"---\nname: !!python/name:os.system x\n---\n", ", line 2: uses a tag"),
        (b"---\nname: \xff\n---\n", ", line 2: is not UTF-8"),
        (b"---\nname: echo\n\nname: echo\n---\n", ", line 4: this key is repeated"),
        (b"---\n# c\nname: other\ndescription: d\n---\n", ", line 3: name: 'other' must be 'echo'"),
        (b"---\nname: echo\ndescription: 5\n---\n", ", line 3: description: must be text"),
    ],
)
def test_the_front_matter(tmp_path: Path, content: bytes, problem: str | None) -> None:
    """Front matter is the YAML between a first line of three hyphens and the next; an error names file and line."""
    (tmp_path / "SKILL.md").write_bytes(content)
    guide = guide_of(tmp_path)
    assert guide is not None
    if problem is None:
        assert guide == Guide("echo", "d")
    else:
        assert str(guide.problem).startswith(f"{tmp_path}/SKILL.md{problem}")
        assert str(guide.problem).isprintable()


def test_no_guide(tmp_path: Path) -> None:
    """A skill without a SKILL.md has no guide, which is no error."""
    assert guide_of(tmp_path) is None
