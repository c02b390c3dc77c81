"""tools/hotpath/code_cache.py: a launch from the code cache does the same as one from its sources."""

import json
import marshal
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).parents[3]
STAGES = {"options", "launch", "record", "inspection"}


class Copy:
    """A copy of omac that a test may change, with a project and a state folder."""

    def __init__(self, top: Path) -> None:
        self.package = top / "src/omac"
        shutil.copytree(HERE / "src/omac", self.package, ignore=shutil.ignore_patterns("__pycache__"))
        self.workdir = top / "project"
        self.workdir.mkdir()
        self._environment = {**os.environ, "HOME": str(top), "OMAC_STATE_DIR": str(top / "state")}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run(["git", "init", "-q"], cwd=self.workdir, env=self._environment, check=True)

    def run(self, *words: str, status: int = 0, before: str = "pass") -> str:
        """Run a command line, after the statements `before`; return its output."""
        folders = [str(self.package.parent), sysconfig.get_path("purelib")]
        script = f"import sys; sys.path += {folders!r}; {before}; from omac.tools.entry import main; main()"
        line = [sys.executable, "-I", "-S", "-c", script, "sandbox", "run", *words]
        done = subprocess.run(line, cwd=self.workdir, env=self._environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def hook(self, path: str) -> int:
        """Ask the write guard for a write to a path, and return its exit status."""
        script = f"import sys; sys.path.append({str(self.package.parent)!r}); from omac.tools.entry import main; main()"
        line = [sys.executable, "-I", "-S", "-c", script, "hook", "pre-tool-use"]
        call = {"hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": {"file_path": path}}
        environment = {**self._environment, "OMAC_WORKDIR": str(self.workdir)}
        return subprocess.run(line, input=json.dumps(call).encode(), cwd=self.workdir, env=environment).returncode

    @property
    def files(self) -> dict[str, Path]:
        """Return the files of the cache, by stage."""
        return {
            path.name.partition(".")[0]: path for path in (self.package / "tools/hotpath/__pycache__").glob("*.code")
        }

    def say(self, text: str) -> None:
        """Let the help begin differently, with as many bytes."""
        source = self.package / "tools/hotpath/sandbox_options.py"
        content = source.read_text()
        begin = content.index('USAGE = """') + len('USAGE = """')
        later = source.stat().st_mtime + 2  # Python's own cache knows whole seconds
        source.write_text(content[:begin] + text + content[begin + len(text) :])
        os.utime(source, (later, later))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_made_by_the_first_launch_and_used_by_the_next(copy: Copy) -> None:
    """The first launch makes the cache. The second one reads none of the modules one by one, and does the same."""
    first = copy.run("--", "echo", "done")
    made = {stage: path.read_bytes() for stage, path in copy.files.items()}
    assert made.keys() == STAGES
    for folder in copy.package.rglob("__pycache__"):  # what is loaded now is loaded from one file, or from source
        for compiled in folder.glob("*.pyc"):
            compiled.unlink()
    assert copy.run("--", "echo", "done") == first == "done\n"
    compiled_anew = {path.name.partition(".")[0] for path in copy.package.rglob("*.pyc")}
    assert compiled_anew == {"__init__", "entry", "code_cache"}
    assert {stage: path.read_bytes() for stage, path in copy.files.items()} == made


def test_made_by_a_program_that_had_loaded_more(copy: Copy) -> None:
    """Launches work with a cache that a program made which had loaded parts of omac before: these are not in it."""
    copy.run("--", "true", before="from omac.adapters.git import git_folder")
    assert copy.files.keys() == STAGES
    assert copy.run("--", "echo", "done") == "done\n"


def test_a_changed_source_counts(copy: Copy) -> None:
    """A changed source counts at once, and again from the cache."""
    copy.run("--", "true")
    copy.say("Changed once. ")
    assert copy.run("--help").startswith("Changed once.")
    copy.run("--", "true")
    assert copy.run("--help").startswith("Changed once.")
    copy.say("Changed twice.")
    assert copy.run("--help").startswith("Changed twice.")


@pytest.mark.full
def test_a_copy_uses_its_own_sources(copy: Copy, tmp_path: Path) -> None:
    """A copied installation, with its cache, uses its own sources."""
    copy.run("--", "true")
    duplicate = Copy(tmp_path / "other")
    shutil.rmtree(duplicate.package)
    shutil.copytree(copy.package, duplicate.package)
    duplicate.say("Of the copy. ")
    assert duplicate.run("--help").startswith("Of the copy.")
    assert not copy.run("--help").startswith("Of the copy.")


def test_the_write_guard_answers_the_same_with_it(copy: Copy) -> None:
    """The write guard's answer is the same without a cache, with one, with a damaged one, and if none can be
    written."""
    inside, outside = str(copy.workdir / "file"), "/etc/omac-is-not-asked"
    answers = [(copy.hook(inside), copy.hook(outside)) for _ in range(2)]
    assert copy.files.keys() == {"hook"}
    copy.files["hook"].write_bytes(copy.files["hook"].read_bytes()[:-100])
    answers.append((copy.hook(outside), copy.hook(inside))[::-1])
    shutil.rmtree(copy.files["hook"].parent)
    (copy.package / "tools/hotpath/__pycache__").write_text("")
    answers.append((copy.hook(inside), copy.hook(outside)))
    assert answers == [(0, 2)] * 4


def parts(content: bytes) -> tuple[bytes, object, object, object]:
    """Return what a cache has: marshal gives other bytes for the same code where Python shares other objects."""
    magic, length, rest = content[:4], int.from_bytes(content[4:8], "little"), content[8:]
    key, _, entries = marshal.loads(rest[:length])
    return magic, key, entries, marshal.loads(rest[length:])


@pytest.mark.parametrize("damage", ["cut", "emptied", "of another Python", "a folder", "a link"])
def test_a_file_that_is_none(copy: Copy, damage: str, tmp_path: Path) -> None:
    """A damaged cache is made again, or left if it cannot be replaced."""
    copy.run("--", "true")
    path = copy.files["launch"]
    whole = path.read_bytes()
    path.unlink()
    match damage:
        case "cut":
            path.write_bytes(whole[:-100])
        case "emptied":
            path.write_bytes(b"")
        case "of another Python":
            path.write_bytes(b"\0\0\0\0" + whole[4:])
        case "a folder":
            path.mkdir()
        case "a link":
            path.symlink_to(tmp_path / "nothing")
        case _:
            raise AssertionError(damage)
    assert copy.run("--", "echo", "done") == "done\n"
    assert path.is_dir() == (damage == "a folder")
    if damage != "a folder":
        assert parts(path.read_bytes()) == parts(whole)
    assert not list(path.parent.glob("*.code.*"))


def test_where_it_cannot_be_written(copy: Copy) -> None:
    """A launch works without a cache if none can be written, and prints nothing about it."""
    shutil.rmtree(copy.package / "tools/hotpath/__pycache__", ignore_errors=True)
    (copy.package / "tools/hotpath/__pycache__").write_text("")
    assert copy.run("--", "echo", "done") == "done\n"


def test_only_a_launch_makes_it(copy: Copy) -> None:
    """A call that ends before a launch loads less code, and makes no cache that would lack the rest."""
    copy.run("--help")
    copy.run("--explain", "--", "true")
    copy.run("--allow", "/nonexistent", "--", "true", status=2)
    assert copy.files == {}


def test_errors_name_the_source(copy: Copy) -> None:
    """A traceback from cached code shows file and line."""
    copy.run("--", "true")
    load = f"import sys; sys.path.append({str(copy.package.parent)!r}); from omac.tools.hotpath import code_cache as c"
    probe = f"{load}; c.load('options'); from omac.tools.hotpath import sandbox_options as o; o.parse(None)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True)
    assert f'{copy.package}/tools/hotpath/sandbox_options.py", line' in done.stderr


@pytest.mark.parametrize("is_changeable", [False, True])
def test_an_ordinary_launch_loads_no_more(copy: Copy, is_changeable: bool) -> None:
    """A launch without changes does not load the code that assesses changes: it would cost a third of the launch. That
    holds also where the first launch loaded all of it early, since its program could change omac."""
    said = copy.run(*(("--allow", str(copy.package)) if is_changeable else ()), "--", "true")
    assert ("is part of omac" in said) == is_changeable
    loaded = {entry[0] for path in copy.files.values() for entry in _index(path)}
    assert "omac.domain.git.folder" in loaded
    judging = ("judges", "config_allowlist", "config_values", "config_changes", "index", "checkout")
    assert not loaded & {f"omac.domain.git.{name}" for name in judging}


@pytest.mark.parametrize(("file", "words"), [("settings", ()), ("sandbox-profiles/work", ("--profile", "work"))])
def test_settings_and_profiles_are_loaded_by_launches_that_have_them(
    copy: Copy, file: str, words: tuple[str, ...]
) -> None:
    """The first launch may have settings or a profile. The next ones load nothing for these."""
    path = copy.workdir.parent / f".config/omac/{file}.toml"
    path.parent.mkdir(parents=True)
    path.touch()
    copy.run(*words, "--", "true")
    assert copy.files.keys() == STAGES
    loaded = {entry[0] for path in copy.files.values() for entry in _index(path)}
    assert "omac.services.sandbox.launch" in loaded
    assert not {name for name in loaded if "settings" in name or name.endswith("profile")}


def _index(path: Path) -> list[tuple[str, str, bool, int, int]]:
    content = path.read_bytes()
    length = int.from_bytes(content[4:8], "little")
    entries: list[tuple[str, str, bool, int, int]]
    _key, _size, entries = marshal.loads(content[8 : 8 + length])
    return entries
