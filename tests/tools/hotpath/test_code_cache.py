"""tools/hotpath/code_cache.py: what is loaded from the code cache is, and does, the same as from its sources."""

import json
import marshal
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from real_omac import Omac

from omac.tools.hotpath import code_cache

HERE = Path(__file__).parents[3]
STAGES = {"options", "launch", "record", "inspection"}
INSTALLED = Path(sys.executable).with_name("omac")
SCRIPT = """
import sys
sys.path += {libraries!r}
from omac.tools.hotpath import code_cache
code_cache.file_of = lambda stage: {file!r}
code_cache.load("any", libraries=True)
import thing.part
code_cache.keep()
import inspect, thing, thing.other
from importlib.resources import files
print(thing.part.word, thing.other.word, files(thing).joinpath("data").read_text(), sep=",", end=",")
print(len(inspect.getsource(thing.part)), thing.__path__ == [thing.__file__.rpartition("/")[0]], sep=",", end=",")
print(*(type(sys.modules[name].__spec__.loader).__name__ for name in ("thing", "thing.part", "thing.other")), sep=",")
"""
AS_PYTHON = "SourceFileLoader,SourceFileLoader,SourceFileLoader"
FROM_FILE = "_Loader,_Loader,SourceFileLoader"


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


class Library:
    """A package in a folder of its own, and programs that import it."""

    def __init__(self, top: Path) -> None:
        self.folder = top / "libraries"
        self.file = top / "any.code"
        self.write(self.folder, "first")

    def write(self, folder: Path, word: str) -> None:
        """Write the package, whose module holds a word."""
        package = folder / "thing"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("from thing import part\n")
        (package / "other.py").write_text("word = 'other'\n")
        (package / "data").write_text("data")
        part = package / "part.py"
        later = part.stat().st_mtime + 2 if part.exists() else 0.0  # Python's own cache knows whole seconds
        part.write_text(f"import thing\nword = {word!r}\n")
        if later:
            os.utime(part, (later, later))

    def run(self, *first: Path, flags: tuple[str, ...] = ("-I", "-S")) -> str:
        """Import the package in a new process, which searches these folders first."""
        package = Path(code_cache.__file__).parents[3]
        libraries = [str(package), *map(str, first), str(self.folder)]
        script = SCRIPT.format(libraries=libraries, file=str(self.file))
        environment = {"PATH": os.environ["PATH"]}
        done = subprocess.run([sys.executable, *flags, "-c", script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path)


def told(word: str, loaders: str) -> str:
    """Return the output of a program that imports the package."""
    source = f"import thing\nword = {word!r}\n"
    return f"{word},other,data,{len(source)},True,{loaders}"


def test_modules_are_what_they_were(library: Library) -> None:
    """Modules from the cache are the same, with their sources and files. Python itself finds modules that are imported
    later."""
    assert library.run() == told("first", AS_PYTHON)
    made = library.file.read_bytes()
    assert library.run() == library.run() == told("first", FROM_FILE)
    assert library.file.read_bytes() == made


def test_a_changed_source_counts(library: Library) -> None:
    """A changed source counts at once, and again from the cache."""
    library.run()
    library.write(library.folder, "again")
    assert library.run() == told("again", AS_PYTHON)
    assert library.run() == told("again", FROM_FILE)


def test_a_module_that_comes_first_counts(library: Library, tmp_path: Path) -> None:
    """A module in a folder that Python searches first is used, not the cached one from another folder."""
    library.run()
    before = tmp_path / "before"
    library.write(before, "before")
    assert library.run(before) == told("before", AS_PYTHON)


@pytest.mark.parametrize("flags", [(), ("-I",), ("-S",)])
def test_an_interpreter_that_is_not_isolated_goes_without(library: Library, flags: tuple[str, ...]) -> None:
    """An interpreter that is not isolated may find modules of other users, so it neither uses nor writes the cache."""
    assert library.run(flags=flags) == told("first", AS_PYTHON)
    assert not library.file.exists()
    library.run()
    assert library.run(flags=flags) == told("first", AS_PYTHON)


def test_what_is_not_to_be_written_is_not(library: Library) -> None:
    """No cache is written with the interpreter's option -B."""
    library.run(flags=("-I", "-S", "-B"))
    assert not library.file.exists()


DAMAGE = [
    "cut", "emptied", "of another Python", "of another place", "a folder", "a link", "no index", "no code",
    "other code", "a huge index",
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_none(library: Library, damage: str, tmp_path: Path) -> None:
    """A damaged cache is made again, or left if it cannot be replaced."""
    library.run()
    whole = library.file.read_bytes()
    size = int.from_bytes(whole[4:8], "little")
    library.file.unlink()
    match damage:
        case "cut":
            library.file.write_bytes(whole[:-100])
        case "emptied":
            library.file.write_bytes(b"")
        case "of another Python":
            library.file.write_bytes(b"\0\0\0\0" + whole[4:])
        case "of another place":
            library.file.write_bytes(whole.replace(str(library.folder).encode(), b"x" * len(str(library.folder))))
        case "no index":
            library.file.write_bytes(whole[:8] + bytes(32) + whole[40:])
        case "no code":
            library.file.write_bytes(whole[: 8 + size] + bytes(len(whole) - 8 - size))
        case "other code":
            code = marshal.dumps((None,))
            library.file.write_bytes(whole[: 8 + size] + code + bytes(len(whole) - 8 - size - len(code)))
        case "a huge index":
            library.file.write_bytes(whole[:4] + b"\xff" * 4 + whole[8:])
        case "a folder":
            library.file.mkdir()
        case "a link":
            library.file.symlink_to(tmp_path / "nothing")
        case _:
            raise AssertionError(damage)
    assert library.run() == told("first", AS_PYTHON)
    assert library.run() == told("first", AS_PYTHON if damage == "a folder" else FROM_FILE)
    assert not list(tmp_path.glob("any.code.*"))


def test_code_without_assertions_is_kept_apart() -> None:
    """Each level of optimization has a cache of its own, as in Python."""
    script = f"import sys; sys.path += [{str(Path(code_cache.__file__).parents[3])!r}]\n"
    script += "from omac.tools.hotpath.code_cache import file_of; print(file_of('start'))"
    argv = ([sys.executable, *flags, "-I", "-S", "-c", script] for flags in ((), ("-O",), ("-OO",)))
    paths = [subprocess.run(line, capture_output=True, text=True, check=True).stdout for line in argv]
    assert len(set(paths)) == 3
    assert paths[0].strip() == code_cache.file_of("start")


@pytest.mark.full
def test_a_start_makes_it(omac: Omac) -> None:
    """An installed `omac start` caches the code that it loads, including that of its libraries."""
    (omac.root / "project").mkdir()
    line = [str(INSTALLED), "start", "--", "true"]
    done = subprocess.run(line, cwd=omac.root / "project", env=omac.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    content = Path(code_cache.file_of("start")).read_bytes()
    assert b"trio/_core/_run.py" in content[:200_000]
    assert b"omac/tools/compose/serving.py" in content[:200_000]
