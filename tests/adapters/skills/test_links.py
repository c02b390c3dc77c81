import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.skills.links import Links, Uncopyable, still_leads

SOURCE = "/proj/skill"
FILES = {"run", "lib/code", ".venv/pyvenv.cfg", ".venv/bin/pip", "bin/x", "other/bin/x"}


def settled(links: dict[str, str]) -> dict[str, str]:
    return Links(SOURCE, FILES, links).settle()


@pytest.mark.parametrize(
    ("relpath", "target", "expected"),
    [
        ("a", "run", "run"),
        ("a", "./lib//code", "./lib//code"),
        ("lib/a", "../run", "../run"),
        ("lib/a", "../lib/../run", "../lib/../run"),
        ("a", "lib/", "lib/"),
        ("a", ".", "."),
        ("a", "gone", "gone"),
        ("lib/a", "../gone/deeper/..", "../gone/deeper/.."),
        ("a", "run/../../x", "run/../../x"),  # nothing is below a file
        ("a", "a", "a"),
        ("a", "/proj/skill/run", "run"),
        ("lib/deep/a", "/proj/skill/lib/code", "../../lib/code"),
        ("lib/a", "/proj//./skill/", ".."),
        ("a", "/proj/skill", "."),
        ("lib/a", "/proj/skill/lib/../run", "../lib/../run"),
        (".venv/lib64", "lib", "lib"),
        ("new\nline", "run", "run"),
        ("\udcff", "/proj/skill/\udcfe", "\udcfe"),
    ],
)
def test_links_that_stay_inside(relpath: str, target: str, expected: str) -> None:
    """Relative links stay as they are and absolute ones become relative; a dangling link is harmless."""
    assert settled({relpath: target}) == {relpath: expected}


@pytest.mark.parametrize(
    ("relpath", "target"),
    [
        ("a", ".."),
        ("a", "../skill/run"),
        ("lib/a", "../../x"),
        ("a", "lib/../../x"),
        ("a", "gone/../../x"),
        ("a", "/etc/passwd"),
        ("a", "/proj/skill-2/run"),
        ("a", "/proj/skill/../x"),
        ("a", "/proj/x/../skill/run"),
        ("a", "/"),
        ("python", "/usr/bin/python3"),
        ("bin/python", "/usr/bin/python3"),  # no pyvenv.cfg above
        (".venv/bin/deep/python", "/usr/bin/python3"),
        (".venv/bin/node", "/usr/bin/python3"),
        (".venv/lib/python3", "/usr/lib/python3"),
        (".venv/bin/python", "/usr/lib"),
        (".venv/bin/python", "/etc/passwd"),
        (".venv/bin/python", "/gone/python"),
        (".venv/bin/python", "../../../../../proj/gone"),
        (".venv/bin/python", "/dev/null"),
    ],
)
def test_links_that_lead_out(relpath: str, target: str) -> None:
    """A link that leads out is refused by name, with a fix, in printable text."""
    with pytest.raises(Uncopyable) as caught:
        settled({relpath: target})
    assert caught.value.filename == f"{SOURCE}/{relpath}"
    assert str(caught.value.strerror).isprintable()
    assert caught.value.fix


@pytest.mark.parametrize(
    "links",
    [
        {"a": "b", "b": "c", "c": "run"},
        {"a": "b", "b": "a"},
        {"d": "lib", "a": "d/code", "lib/up": "..", "b": "d/up/run"},
        {"d": "/proj/skill/lib", "a": "d/../run"},
    ],
)
def test_chains_inside(links: dict[str, str]) -> None:
    """Links that lead through other links are followed as the kernel follows them."""
    assert settled(links).keys() == links.keys()


@pytest.mark.parametrize(
    ("links", "culprit"),
    [
        ({"lib/up": "..", "a": "lib/up/../x"}, "a"),
        ({"z": "lib/deep", "lib/deep": "../.."}, "lib/deep"),
        ({"a": "b", "b": "/etc"}, "b"),
        ({"a": "b/passwd", "b": "/etc"}, "b"),
    ],
)
def test_chains_that_lead_out(links: dict[str, str], culprit: str) -> None:
    """A link's target decides, not its spelling; the refusal names the link that leads out by itself."""
    with pytest.raises(Uncopyable) as caught:
        settled(links)
    assert caught.value.filename == f"{SOURCE}/{culprit}"


def test_links_that_take_for_ever() -> None:
    """A great many links that lead through each other are refused instead of followed for ever."""
    links = {f"l{number}": f"l{number + 1}/.." * 200 + "x" for number in range(3000)}
    with pytest.raises(Uncopyable, match="take too long to follow"):
        settled({f"{'d/' * 60}{name}": f"{'x/' * 1900}" + target for name, target in links.items()} | links)


def test_an_interpreter(interpreter: str) -> None:
    """Links to the interpreter through others stay; the link that leads out leads straight to the program."""
    resolved = os.path.realpath(interpreter)
    links = Links(SOURCE, FILES, {".venv/bin/python": "python3", ".venv/bin/python3": interpreter})
    assert links.settle() == {".venv/bin/python": "python3", ".venv/bin/python3": resolved}
    assert links.outside == {interpreter: resolved}
    assert still_leads(interpreter, resolved)
    assert not still_leads(interpreter, "/usr/bin/env")
    assert not still_leads("/gone", resolved)
    assert Links(SOURCE, {"pyvenv.cfg"}, {"bin/python": interpreter}).settle() == {"bin/python": resolved}


def test_interpreters_that_take_for_ever(tmp_path: Path, interpreter: str) -> None:
    """Very many links to an interpreter, or one that leads there along very many folders, are refused."""
    (tmp_path / "python3").symlink_to("/usr/.." * 300 + interpreter)
    with pytest.raises(Uncopyable, match="Too many parts"):
        settled({".venv/bin/python3": f"{tmp_path}/python3"})
    with pytest.raises(Uncopyable, match="take too long to follow"):
        settled({f".venv/bin/python3.{number}": interpreter for number in range(2000)})


@pytest.mark.parametrize("how", ["file", "folder", "sticky", "plain"])
def test_an_interpreter_that_others_can_change(tmp_path: Path, how: str) -> None:
    """A program that other users may write, or replace in its folder, is refused, even in a sticky folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "python3"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o775 if how == "file" else 0o755)
    folder.chmod({"folder": 0o777, "sticky": 0o1777}.get(how, 0o755))
    with pytest.raises(Uncopyable) as caught:
        settled({".venv/bin/python": str(program)})
    assert f"{tmp_path}".startswith("/tmp")  # which is sticky: even the plain one is not believed
    assert caught.value.filename == f"{SOURCE}/.venv/bin/python"
    problem = "belongs to user" if os.geteuid() else "is writable by users other than root"
    assert problem in str(caught.value.strerror)
    assert "venv --clear" in caught.value.fix[0]


PARTS = st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), min_size=1, max_size=5).map("/".join)
TARGETS = PARTS.filter(lambda path: path not in ("", "/")) | PARTS.map(lambda path: f"/proj/skill/{path}")


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d/a", "d/b", "d/d/a"]), TARGETS, max_size=6))
def test_no_way_through_a_copy_leads_out(links: dict[str, str]) -> None:
    """The kernel agrees: whatever links are accepted, none of them ends outside the copy."""
    try:
        settled_links = Links(SOURCE, {"d/c"}, links).settle()
    except Uncopyable:
        return
    with tempfile.TemporaryDirectory() as top:
        copy = f"{os.path.realpath(top)}/outer/copy"
        os.makedirs(f"{copy}/d/d")
        Path(copy, "d", "c").touch()
        for relpath, target in settled_links.items():
            os.symlink(target, f"{copy}/{relpath}")
        for relpath in links:
            with suppress(OSError):
                fd = os.open(f"{copy}/{relpath}", os.O_PATH)
                real = os.readlink(f"/proc/self/fd/{fd}")
                os.close(fd)
                assert real == copy or real.startswith(f"{copy}/")
