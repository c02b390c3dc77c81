"""adapters/settings/files.py: real files, of careful and careless people, and of agents that mean harm."""

import fcntl
import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.settings.files import BYTES_MAX, changing_user, read_project, read_user, user_path
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.settings import SETTINGS, SettingsFile

Environment = Mapping[str, str]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """A home of this test's own."""
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def mine(environment: Environment) -> Path:
    """Where the user's file goes; its folder exists."""
    path = Path(user_path(environment))
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Where a project's file goes; its folder exists."""
    path = tmp_path / "project" / ".omac" / "settings.toml"
    path.parent.mkdir(parents=True)
    return path


def project_of(path: Path) -> SettingsFile:
    """What the project says whose file this is."""
    return read_project(str(path.parent.parent))


def write(path: Path, content: str | bytes) -> None:
    """A file that only its owner may write."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o600)


def put(environment: Environment, name: str, value: str | None) -> bool:
    """Set one setting, with nothing to record."""
    with changing_user(environment, SETTINGS[name], value) as change:
        if change is not None:
            change.write()
        return change is not None


def refused(call: Callable[[], object]) -> Refusal:
    """The refusal that this raises."""
    with pytest.raises(Refusal) as caught:
        call()
    assert caught.value.message.isprintable()
    assert caught.value.fix
    return caught.value


# ---- the user's file ----


def test_where_it_is() -> None:
    """XDG_CONFIG_HOME, else ~/.config."""
    assert user_path({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == "/c/omac/settings.toml"
    assert user_path({"HOME": "/h", "XDG_CONFIG_HOME": ""}) == "/h/.config/omac/settings.toml"


def test_there_need_not_be_one(environment: Environment) -> None:
    """Then it says nothing."""
    assert read_user(environment) == SettingsFile(user_path(environment))


def test_it_is_read(environment: Environment, mine: Path) -> None:
    """Tables of words; links to it are the user's own business."""
    write(mine.parent / "kept.toml", '[serve]\nunapproved = "confine"\nauto_register = false\n')
    mine.symlink_to("kept.toml")
    assert read_user(environment).values == {"serve.unapproved": "confine", "serve.auto_register": "false"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[serve\n", "is not valid TOML"),
        ("[serve]\nunapproved = 1\nunapproved = 2\n", "is not valid TOML"),
        (b"\xff", "is not UTF-8 text"),
        ("x=" + "[" * 5_000, "is nested too deep"),
        ("x=" + "9" * 5_000, "is not valid TOML"),
        ("#" * (BYTES_MAX + 1), "is larger than 64 KiB"),
        ('[serve]\nunapproved = "no"\n', "serve.unapproved takes refuse, confine or allow, not 'no'"),
        ('[server]\nunapproved = "no"\n', "unknown table server; did you mean serve?"),
    ],
)
def test_slips_are_refused(environment: Environment, mine: Path, content: str | bytes, told: str) -> None:
    """What a person wrote and omac does not understand could have been meant to protect."""
    write(mine, content)
    refusal = refused(lambda: read_user(environment))
    assert refusal.reason == "settings-invalid"
    assert str(mine) in refusal.message
    assert told in refusal.message


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_others_may_not_write_it(environment: Environment, mine: Path, mode: int) -> None:
    """They would decide what omac does."""
    write(mine, "")
    mine.chmod(mode)
    refusal = refused(lambda: read_user(environment))
    assert (refusal.reason, refusal.fix) == ("settings-invalid", (f"chmod 600 {mine}",))
    assert refused(lambda: put(environment, "secrets.store", "vault")).reason == "settings-invalid"


def test_it_may_not_be_another_users(environment: Environment, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns a file can change it."""
    write(mine, "")
    owner = mine.stat().st_uid
    other = owner + 1
    if owner == 0:
        os.chown(mine, other := 12345, -1)
        assert f"belongs to user {other}" in refused(lambda: read_user(environment)).message
    else:
        monkeypatch.setattr(os, "geteuid", lambda: other)
        assert f"belongs to user {owner}" in refused(lambda: read_user(environment)).message


def test_it_must_be_a_file(environment: Environment, mine: Path) -> None:
    """A FIFO is not waited for."""
    os.mkfifo(mine, 0o600)
    assert "is not a regular file" in refused(lambda: read_user(environment)).message
    mine.unlink()
    mine.mkdir()
    assert "is not a regular file" in refused(lambda: read_user(environment)).message
    mine.rmdir()
    mine.parent.rmdir()
    mine.parent.write_text("")
    assert "Not a directory" in refused(lambda: read_user(environment)).message


# ---- writing it ----

KEPT = """\
# mine
[secrets] # where
store = "auto"   # for now

[serve]
# careful
unapproved = 'confine'
auto_register = true
"""


def test_the_first_setting_makes_the_file(environment: Environment) -> None:
    """Nobody else may read it, nor look into its folder."""
    assert put(environment, "serve.auto_register", "false")
    path = Path(user_path(environment))
    assert path.read_text() == "[serve]\nauto_register = false\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("name", "value", "old", "new"),
    [
        ("secrets.store", "vault", '"auto"', '"vault"'),
        ("serve.unapproved", "refuse", "'confine'", '"refuse"'),
        ("serve.unapproved", None, "unapproved = 'confine'\n", ""),
        ("serve.auto_register", "false", "true", "false"),
        ("serve.bundle_drift", "accept", "true\n", 'true\nbundle_drift = "accept"\n'),
    ],
)
def test_the_rest_stays(environment: Environment, mine: Path, name: str, value: str | None, old: str, new: str) -> None:
    """Comments, order and spelling of what is not changed are the person's."""
    write(mine, KEPT)
    assert put(environment, name, value)
    assert mine.read_text() == KEPT.replace(old, new)
    assert read_user(environment).values.get(name) == value


@pytest.mark.parametrize(
    ("content", "name", "value"),
    [
        ("", "serve.unapproved", None),
        (KEPT, "serve.bundle_drift", None),
        (KEPT, "serve.unapproved", "confine"),
        (KEPT, "serve.auto_register", "true"),
        ('[serve]\nauto_register = "true"\n', "serve.auto_register", "true"),
    ],
)
def test_nothing_to_change(environment: Environment, mine: Path, content: str, name: str, value: str | None) -> None:
    """What the file says already is neither written nor recorded."""
    write(mine, content)
    before = mine.stat()
    assert not put(environment, name, value)
    assert mine.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    "content",
    [
        "serve.unapproved = 'confine'\n",
        "serve = {unapproved = 'confine'}",
        "[serve]\nunapproved = 'confine' # no newline",
        "[serve]\nunapproved = 'confine'\r\n[secrets]\r\n",
        "[serve.more]\nx = 1\n[serve]\nunapproved = 'wrong'\n",
        "[[other]]\n[[other]]\n",
        "# only a comment",
    ],
)
def test_every_way_to_write_toml(environment: Environment, mine: Path, content: str) -> None:
    """However it is written, the one setting changes, and nothing else; also where the file has slips elsewhere."""
    for name, value in (("serve.unapproved", "allow"), ("secrets.store", "vault"), ("serve.unapproved", None)):
        write(mine, content)
        expected = tomllib.loads(content)
        table, key = SETTINGS[name].table_and_key
        if value is None:
            expected.get(table, {}).pop(key, None)
        else:
            expected.setdefault(table, {})[key] = value
        put(environment, name, value)
        found = tomllib.loads(mine.read_text())
        assert {table: {}, **found} == {table: {}, **expected}, "a table may go with its last setting"


def test_a_file_that_cannot_be_changed(environment: Environment, mine: Path) -> None:
    """It is left as it is, and the person is told what to do by hand."""
    write(mine, "serve = 5\n")
    refusal = refused(lambda: put(environment, "serve.unapproved", "refuse"))
    assert (refusal.reason, refusal.fix) == ("settings-invalid", (f"${{EDITOR:-vi}} {mine}  # set serve.unapproved",))
    assert mine.read_text() == "serve = 5\n"


def test_the_record_comes_first(environment: Environment, mine: Path) -> None:
    """What cannot be recorded does not happen, and leaves nothing behind."""
    write(mine, KEPT)
    seen: list[str] = []

    def record() -> None:
        with changing_user(environment, SETTINGS["secrets.store"], "vault") as change:
            assert change is not None
            seen.append(change.origin + mine.read_text())
            raise Refusal("journal-unavailable", "no", fix=["-"])

    assert refused(record).reason == "journal-unavailable"
    assert seen == [f"user {mine}" + KEPT]
    assert mine.read_text() == KEPT
    assert os.listdir(mine.parent) == [mine.name]


@pytest.mark.parametrize(
    ("content", "present"),
    [
        ("", None),
        ("[serve]\nunapproved = 'refuse'\n", None),
        ("[secrets]\nstore = 'keychain'\n", "keychain"),
        ("[secrets]\nstore = 5\n", None),
    ],
)
def test_a_change_knows_what_the_file_says(
    environment: Environment, mine: Path, content: str, present: str | None
) -> None:
    """So that a change which omac was killed in can be closed; nobody else changes the file meanwhile."""
    write(mine, content)
    with changing_user(environment, SETTINGS["secrets.store"], "vault") as change:
        assert change is not None
        assert change.present == present
        folder = os.open(mine.parent, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
        assert mine.read_text() == content
    assert mine.read_text() == content, "what is not written is not changed"


def test_a_link_stays_a_link(environment: Environment, mine: Path, tmp_path: Path) -> None:
    """The file that it leads to is changed, even one that is not there yet."""
    mine.symlink_to(tmp_path / "dotfiles" / "omac.toml")
    assert put(environment, "secrets.store", "vault")
    assert mine.is_symlink()
    assert (tmp_path / "dotfiles" / "omac.toml").read_text() == '[secrets]\nstore = "vault"\n'


def test_a_place_that_cannot_be_written(environment: Environment, mine: Path) -> None:
    """The refusal names the file."""
    mine.parent.rmdir()
    mine.parent.write_text("")
    refusal = refused(lambda: put(environment, "secrets.store", "vault"))
    assert refusal.reason == "state-unusable"
    assert str(mine) in refusal.message


def test_one_at_a_time(environment: Environment, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that change it at once neither undoes the other; one that hangs is not waited for without end."""
    monkeypatch.setattr("omac.adapters.files.lock.FOLDER_WAIT_S", 0.05)
    folder = os.open(mine.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert refused(lambda: put(environment, "secrets.store", "vault")).reason == "contention"
    os.close(folder)
    assert put(environment, "secrets.store", "vault")


# ---- a project's file ----


def test_a_project_need_not_have_one(tmp_path: Path, theirs: Path) -> None:
    """Without file, folder or project there is nothing to tell."""
    assert project_of(theirs) == SettingsFile(str(theirs))
    theirs.parent.rmdir()
    assert project_of(theirs) == SettingsFile(str(theirs))
    assert read_project(str(tmp_path / "gone")).warnings == ()


def test_a_project_is_heard(theirs: Path) -> None:
    """Whoever may write it: whether it may say so is decided elsewhere."""
    theirs.write_text("# " + "long " * 100 + '\n[serve]\nunapproved = "refuse"\n')
    theirs.chmod(0o666)
    assert project_of(theirs) == SettingsFile(str(theirs), {"serve.unapproved": "refuse"})


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[serve\n", "is not valid TOML"),
        ("x='\x1b[2J'", "is not valid TOML"),
        (b"\xff", "is not UTF-8 text"),
        (("x=" + "[" * 150 + "\n") * 3, "is not valid TOML"),
        ("x=" + "[\n" * 20_000, "is nested too deep"),
        ("x=" + "9" * 5_000, "has a line of more than 200 bytes"),
        ("a." * 30_000 + "a=1", "has a line of more than 200 bytes"),
        ("#" * (BYTES_MAX + 1), "is larger than 64 KiB"),
        ("[serve]\nunapproved = 7\n", "serve.unapproved takes"),
    ],
)
def test_hostile_content(theirs: Path, content: str | bytes, told: str) -> None:
    """It is told of and says nothing; it neither stops omac nor keeps it busy."""
    theirs.write_bytes(content.encode() if isinstance(content, str) else content)
    begun = perf_counter()
    found = project_of(theirs)
    assert perf_counter() - begun < 2
    (warning,) = found.warnings
    assert found.values == {}
    assert warning.startswith(str(theirs))
    assert told in warning
    assert warning.isprintable()
    assert warning.endswith("; ignored")


def test_the_costliest_keys(theirs: Path) -> None:
    """Dotted keys, in which the parser's time is quadratic, in lines as long as lines may be."""
    line = ".".join("a" * 95)
    theirs.write_text(f"[{line}]\n" + "".join(f"{'b.' * 90}k{number}=1\n" for number in range(340)))
    begun = perf_counter()
    project_of(theirs)
    assert perf_counter() - begun < 5


def secret_elsewhere(theirs: Path) -> Path:
    """A file outside the project that must not be read in its place."""
    path = theirs.parent.parent.parent / "outside" / "settings.toml"
    path.parent.mkdir()
    path.write_text('[serve]\nunapproved = "refuse"\n')
    return path


def link_file(path: Path) -> str:
    """The file is a link."""
    path.symlink_to(secret_elsewhere(path))
    return "is a link"


def link_folder(path: Path) -> str:
    """The folder is a link."""
    path.parent.rmdir()
    path.parent.symlink_to(secret_elsewhere(path).parent)
    return "is in a folder that is a link"


def no_folder(path: Path) -> str:
    """The folder is a file."""
    path.parent.rmdir()
    path.parent.write_text("")
    return "or none at all"


def fifo(path: Path) -> str:
    """The file is a FIFO that nobody writes."""
    os.mkfifo(path)
    return "is not a regular file"


def folder(path: Path) -> str:
    """The file is a folder."""
    path.mkdir()
    return "is not a regular file"


def looping_link(path: Path) -> str:
    """The file is a link to itself."""
    path.symlink_to(path)
    return "is a link"


def no_rights(path: Path) -> str:
    """The file may not be read, except by root, who finds no sense in it."""
    path.write_text("[serve")
    path.chmod(0)
    return "is not valid TOML" if os.access(path, os.R_OK) else "cannot be read"


@pytest.mark.parametrize("trick", [link_file, link_folder, no_folder, fifo, folder, looping_link, no_rights])
def test_hostile_places(theirs: Path, trick: Callable[[Path], str]) -> None:
    """No link is followed, nothing is waited for, and what cannot be read is told of."""
    told = trick(theirs)
    found = project_of(theirs)
    (warning,) = found.warnings
    assert found.values == {}
    assert told in warning


@pytest.mark.parametrize("name", ["a\0b", "a\udcffb", "a\nb", "x" * 5_000])
def test_names_that_are_no_text(tmp_path: Path, name: str) -> None:
    """Whatever a directory is called, its name can be shown."""
    found = read_project(f"{tmp_path}/{name}")
    assert found.path.isprintable()
    assert all(warning.isprintable() for warning in found.warnings)


@given(st.binary(max_size=60) | st.text(alphabet="serv.unapo[]={}'\"\n #1tf", max_size=60).map(str.encode))
def test_any_content(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """It says something, or nothing, or is told of."""
    path = tmp_path_factory.getbasetemp() / "any" / ".omac" / "settings.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    found = project_of(path)
    assert found.path == str(path)
    assert all(warning.isprintable() for warning in found.warnings)
