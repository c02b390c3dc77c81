"""adapters/settings/files.py: real settings files, from careful and careless users and from hostile agents."""

import fcntl
import os
import resource
import stat
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import process_time, sleep

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.settings.files import BYTES_MAX, changing_user, read_project, read_user, user_path
from omac.domain.kernel.refusal import Refusal
from omac.domain.settings.settings import SETTINGS, SettingsFile
from omac.journal.folders import MORE_FILES

Environment = Mapping[str, str]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Return an environment with a home of this test's own."""
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def mine(environment: Environment) -> Path:
    """Return the path of the user's file; its folder exists."""
    path = Path(user_path(environment))
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Return the path of a project's file; its folder exists."""
    path = tmp_path / "project" / ".omac" / "settings.toml"
    path.parent.mkdir(parents=True)
    return path


def project_of(path: Path) -> SettingsFile:
    """Read the settings of the project that this file belongs to."""
    return read_project(str(path.parent.parent))


def write(path: Path, content: str | bytes) -> None:
    """Write a file that only its owner may write."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o600)


def put(environment: Environment, name: str, value: str | None) -> bool:
    """Change a setting, with nothing to record; return whether the file was written."""
    with changing_user(environment, SETTINGS[name], value) as change:
        if change is not None:
            change.write()
        return change is not None


def refused(call: Callable[[], object]) -> Refusal:
    """Return the refusal that a call raises."""
    with pytest.raises(Refusal) as caught:
        call()
    assert caught.value.message.isprintable()
    assert caught.value.fix
    return caught.value


# ---- the user's file ----


def test_where_it_is() -> None:
    """The user's file is below XDG_CONFIG_HOME, else below ~/.config."""
    assert user_path({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == "/c/omac/settings.toml"
    assert user_path({"HOME": "/h", "XDG_CONFIG_HOME": ""}) == "/h/.config/omac/settings.toml"


def test_there_need_not_be_one(environment: Environment) -> None:
    """An absent user's file means no settings."""
    assert read_user(environment) == SettingsFile(user_path(environment))


def test_it_is_read(environment: Environment, mine: Path) -> None:
    """A user's file holds tables of words. It may be a link, which is the user's own choice."""
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
        ('[serve]\nunapproved = "no"\n', ", line 2: serve.unapproved takes refuse or allow, not 'no'"),
        ('# a\n\n[server]\nunapproved = "no"\n', ", line 3: unknown table server; did you mean serve?"),
        ('serve."unapproved" = "no"\n', ", line 1: serve.unapproved takes"),
        ('[git]\nrefs = "all"\n [ "serve" ] # x\nunknown = [\n]\n', ", line 4: unknown setting serve.unknown"),
        ('\nserve = { unapproved = "no" }\n', ", line 2: serve.unapproved takes"),
        ('\nserve = "no"\n', ", line 2: serve must be a table"),
    ],
)
def test_slips_are_refused(environment: Environment, mine: Path, content: str | bytes, told: str) -> None:
    """A user's file that omac does not understand is refused: its author may have wanted protection."""
    write(mine, content)
    refusal = refused(lambda: read_user(environment))
    assert refusal.reason == "settings-invalid"
    assert str(mine) in refusal.message
    assert told in refusal.message


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_others_may_not_write_it(environment: Environment, mine: Path, mode: int) -> None:
    """A user's file that others may write is neither read nor changed: they would decide how omac behaves."""
    write(mine, "")
    mine.chmod(mode)
    refusal = refused(lambda: read_user(environment))
    assert (refusal.reason, refusal.fix) == ("settings-invalid", (f"chmod 600 {mine}",))
    assert refused(lambda: put(environment, "secrets.store", "vault")).reason == "settings-invalid"


def test_it_may_not_be_another_users(environment: Environment, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's file that belongs to another user is refused: its owner can change it."""
    write(mine, "")
    owner = mine.stat().st_uid
    stranger = owner + 1
    if owner == 0:
        os.chown(mine, stranger := 12345, -1)
        assert f"belongs to user {stranger}" in refused(lambda: read_user(environment)).message
    else:
        monkeypatch.setattr(os, "geteuid", lambda: stranger)
        assert f"belongs to user {owner}" in refused(lambda: read_user(environment)).message


def test_it_must_be_a_file(environment: Environment, mine: Path) -> None:
    """A user's file that is no regular file is refused. omac does not wait for a FIFO."""
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
    """The first setting creates a file that only its owner may read, in a folder that only the owner may open."""
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
    """A change keeps the user's comments, order and spelling in the rest of the file."""
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
    """A value that the file already holds is neither written nor recorded."""
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
    """A change alters one setting and nothing else, however the file is written, even if it has errors elsewhere."""
    for name, value in (("serve.unapproved", "allow"), ("secrets.store", "vault"), ("serve.unapproved", None)):
        write(mine, content)
        expected = tomllib.loads(content)
        table, key = SETTINGS[name].table_and_key
        if value is None:
            expected.get(table, {}).pop(key, None)
        else:
            expected.setdefault(table, {})[key] = value
        put(environment, name, value)
        document = tomllib.loads(mine.read_text())
        assert {table: {}, **document} == {table: {}, **expected}, "a table may go with its last setting"


def test_a_file_that_cannot_be_changed(environment: Environment, mine: Path) -> None:
    """A file that omac cannot change stays as it is. The refusal names the edit to make by hand."""
    write(mine, "serve = 5\n")
    refusal = refused(lambda: put(environment, "serve.unapproved", "refuse"))
    assert (refusal.reason, refusal.fix) == ("settings-invalid", (f"${{EDITOR:-vi}} {mine}  # set serve.unapproved",))
    assert mine.read_text() == "serve = 5\n"


def test_the_record_comes_first(environment: Environment, mine: Path) -> None:
    """A change that cannot be recorded does not happen, and leaves nothing behind."""
    write(mine, KEPT)
    states: list[str] = []

    def record() -> None:
        with changing_user(environment, SETTINGS["secrets.store"], "vault") as change:
            assert change is not None
            states.append(change.origin + mine.read_text())
            raise Refusal("journal-unavailable", "no", fix=["-"])

    assert refused(record).reason == "journal-unavailable"
    assert states == [f"user {mine}" + KEPT]
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
    """A change knows the file's present value, so that it can be closed after a kill of omac. The file is locked
    meanwhile."""
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
    """A change writes to the target of a link, even if the target does not exist yet."""
    mine.symlink_to(tmp_path / "dotfiles" / "omac.toml")
    assert put(environment, "secrets.store", "vault")
    assert mine.is_symlink()
    assert (tmp_path / "dotfiles" / "omac.toml").read_text() == '[secrets]\nstore = "vault"\n'


def test_a_place_that_cannot_be_written(environment: Environment, mine: Path) -> None:
    """The refusal names a file that cannot be written."""
    mine.parent.rmdir()
    mine.parent.write_text("")
    refusal = refused(lambda: put(environment, "secrets.store", "vault"))
    assert refusal.reason == "state-unusable"
    assert str(mine) in refusal.message


def test_one_at_a_time(environment: Environment) -> None:
    """Simultaneous changes wait for each other: no two run at once, and none is lost."""
    values = {"secrets.store": "vault", "serve.unapproved": "refuse", "serve.auto_register": "false"}
    running: list[str] = []
    numbers_running: list[int] = []

    def change_slowly(name: str) -> None:
        with changing_user(environment, SETTINGS[name], values[name]) as change:
            running.append(name)
            sleep(0.05)
            numbers_running.append(len(running))
            assert change is not None
            change.write()
            running.remove(name)

    with ThreadPoolExecutor(len(values)) as threads:
        list(threads.map(change_slowly, values))
    assert numbers_running == [1, 1, 1]
    assert read_user(environment).values == values


def test_a_change_that_hangs(environment: Environment, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that hangs is not waited for without end."""
    monkeypatch.setattr("omac.adapters.files.lock.OPENED_WAIT_S", 0.05)
    folder = os.open(mine.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert refused(lambda: put(environment, "secrets.store", "vault")).reason == "contention"
    os.close(folder)
    assert put(environment, "secrets.store", "vault")


# ---- a project's file ----


def test_a_project_need_not_have_one(tmp_path: Path, theirs: Path) -> None:
    """A project without file or folder, or a missing project, yields no settings and no warnings."""
    assert project_of(theirs) == SettingsFile(str(theirs))
    theirs.parent.rmdir()
    assert project_of(theirs) == SettingsFile(str(theirs))
    assert read_project(str(tmp_path / "gone")).warnings == ()


def test_a_project_is_heard(theirs: Path) -> None:
    """A project's file is read even if others may write it: the domain decides which settings a project may make."""
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
        ("[serve]\nunapproved = 7\n", ", line 2: serve.unapproved takes"),
    ],
)
def test_hostile_content(theirs: Path, content: str | bytes, told: str) -> None:
    """A hostile file yields a warning and no settings. It neither stops omac nor keeps it busy."""
    theirs.write_bytes(content.encode() if isinstance(content, str) else content)
    begun = process_time()
    settings_file = project_of(theirs)
    assert process_time() - begun < 2
    (warning,) = settings_file.warnings
    assert settings_file.values == {}
    assert warning.startswith(str(theirs))
    assert told in warning
    assert warning.isprintable()
    assert warning.endswith("; ignored")


def test_the_costliest_keys(theirs: Path) -> None:
    """Dotted keys in lines of maximal length, on which the parser takes quadratic time, are read within bounds."""
    line = ".".join("a" * 95)
    theirs.write_text(f"[{line}]\n" + "".join(f"{'b.' * 90}k{number}=1\n" for number in range(340)))
    begun = process_time()
    project_of(theirs)
    assert process_time() - begun < 5


def secret_elsewhere(theirs: Path) -> Path:
    """Write a file outside the project that must not be read in its place, and return its path."""
    path = theirs.parent.parent.parent / "outside" / "settings.toml"
    path.parent.mkdir()
    path.write_text('[serve]\nunapproved = "refuse"\n')
    return path


def link_file(path: Path) -> str:
    """Make the file a link."""
    path.symlink_to(secret_elsewhere(path))
    return "is a link"


def link_folder(path: Path) -> str:
    """Make the folder a link."""
    path.parent.rmdir()
    path.parent.symlink_to(secret_elsewhere(path).parent)
    return "is in a folder that is a link"


def no_folder(path: Path) -> str:
    """Make the folder a file."""
    path.parent.rmdir()
    path.parent.write_text("")
    return "or none at all"


def fifo(path: Path) -> str:
    """Make the file a FIFO without a writer."""
    os.mkfifo(path)
    return "is not a regular file"


def folder(path: Path) -> str:
    """Make the file a folder."""
    path.mkdir()
    return "is not a regular file"


def looping_link(path: Path) -> str:
    """Make the file a link to itself."""
    path.symlink_to(path)
    return "is a link"


def no_rights(path: Path) -> str:
    """Make the file unreadable, except to root, who finds invalid TOML in it."""
    path.write_text("[serve")
    path.chmod(0)
    return "is not valid TOML" if os.access(path, os.R_OK) else "cannot be read"


@pytest.mark.parametrize("trick", [link_file, link_folder, no_folder, fifo, folder, looping_link, no_rights])
def test_hostile_places(theirs: Path, trick: Callable[[Path], str]) -> None:
    """omac follows no link and waits for no FIFO. A project's file that cannot be read yields a warning."""
    problem = trick(theirs)
    settings_file = project_of(theirs)
    (warning,) = settings_file.warnings
    assert settings_file.values == {}
    assert problem in warning


@pytest.mark.parametrize("name", ["a\0b", "a\udcffb", "a\nb", "x" * 5_000])
def test_names_that_are_no_text(tmp_path: Path, name: str) -> None:
    """The name of a directory can be printed, whatever characters it has."""
    settings_file = read_project(f"{tmp_path}/{name}")
    assert settings_file.path.isprintable()
    assert all(warning.isprintable() for warning in settings_file.warnings)


@given(st.binary(max_size=60) | st.text(alphabet="serv.unapo[]={}'\"\n #1tf", max_size=60).map(str.encode))
def test_any_content(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any content yields settings, none, or printable warnings."""
    path = tmp_path_factory.getbasetemp() / "any" / ".omac" / "settings.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    settings_file = project_of(path)
    assert settings_file.path == str(path)
    assert all(warning.isprintable() for warning in settings_file.warnings)


def test_too_many_open_files(environment: Environment, mine: Path) -> None:
    """Settings that cannot be read for want of a descriptor propose more of those, not a look at the folder."""
    write(mine, "[git]\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(Refusal, match="Too many open files") as refused:
            read_user(environment)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert refused.value.fix == (MORE_FILES,)
