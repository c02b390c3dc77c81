"""tools/hotpath/import_cache.py: an import from the code cache gives the same modules as an import from sources."""

import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest
from real_omac import Omac

from omac.tools.hotpath import code_cache

INSTALLED = Path(sys.executable).with_name("omac")
SCRIPT = """
import sys
sys.path += {libraries!r}
from omac.tools.hotpath import code_cache, import_cache
code_cache.file_of = lambda stage: {file!r}
with import_cache.ImportCache("any") as cache:
    import thing.part
cache.keep()
import inspect, thing, thing.other
from importlib.resources import files
print(thing.part.word, thing.other.word, files(thing).joinpath("data").read_text(), sep=",", end=",")
print(len(inspect.getsource(thing.part)), thing.__path__ == [thing.__file__.rpartition("/")[0]], sep=",", end=",")
print(*(type(sys.modules[name].__spec__.loader).__name__ for name in ("thing", "thing.part", "thing.other")), sep=",")
"""
AS_PYTHON = "SourceFileLoader,SourceFileLoader,SourceFileLoader"
FROM_FILE = "_Loader,_Loader,SourceFileLoader"


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


def test_made_by_the_first_and_used_by_the_next(library: Library) -> None:
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
