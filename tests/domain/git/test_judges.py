"""domain/git/judges.py: no judge takes more time for a file than its length allows, whatever is in it."""

import posixpath
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from omac.domain.git.judges import CLEANERS, JUDGES
from omac.domain.git.place import JudgedFolder

KIBIBYTES = 64
WITHIN_S = 20  # a judge that backtracks would take years
_OID = b"a" * 40
PIECES = (
    b"a", b"0", _OID, b"a" * 64, b" ", b"\t", b"'", b"'\\''", b"''", b"ours", b"ours'", b"'ours'", b"--ours ", b"-S",
    b"pick ", b"pick a b\n", b"exec ", b"x ", b"ref: ", b"refs/heads/", b"refs/heads/x\n", b"\n", b" \n", b"#",
    b"[a]", b"^" + _OID,
    b"[a]\n\tb = c\n", b'[a "b"]', b"\\", b"\\\n", b'"', _OID + b"\t", _OID + b"\tx\0", _OID + b" refs/x\n",
    b"GIT_AUTHOR_NAME='a'\n", b"GIT_AUTHOR_NAME='", b"-3 ", b"merge -C a b\n", b"update-ref ", b"../", b"\xff",
    b"MIDX\1\1\1\0\0\0\0\1", b"DIRC\0\0\0\2\0\1\0\0", b"DIRC\0\0\0\4\0\1\0\0", b"0x1-0x1-a.ref\n",
)  # fmt: skip
ENDS = (b"", b"!", b"\n", b"\0", b"'", b"x\n")


class Nowhere(JudgedFolder):
    """A git folder that answers every question with no."""

    def holds(self, path: str) -> bool:
        return False

    def reaches(self, path: str, *, beside: str) -> bool:
        return False

    def is_own_worktree(self, path: str) -> bool:
        return False

    def is_named_by(self, path: str) -> bool:
        return False

    def is_common(self, path: str) -> bool:
        return False

    def has_entries(self, paths: frozenset[bytes]) -> bool:
        return False

    def leads_past_link(self, path: str) -> bool:
        return False

    def has(self, name: str) -> bool:
        return False


@contextmanager
def limited(what: str) -> Iterator[None]:
    """Fail when the block takes longer than WITHIN_S; re checks for signals while it matches."""

    def late(_number: int, _frame: object) -> None:
        raise AssertionError(f"{what} takes more than {WITHIN_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(WITHIN_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", [*JUDGES, *CLEANERS])
@pytest.mark.full
def test_no_content_keeps_it_busy(name: str) -> None:
    """Each judge comes to an end on repeated pieces of the files that judges read, with an end that does not fit."""
    judge = JUDGES.get(name) or CLEANERS[name]
    with limited(name):
        for piece in PIECES:
            for end in ENDS:
                judge(piece * (KIBIBYTES * 1024 // len(piece)) + end, b"", Nowhere())


TABLES = {
    b"0x000000000001-0x000000000002-1a2b3c4d.ref\n": True,
    b"0x1-0x2-a.ref\n0x3-0x3-b.log\n": True,
    b"": True,
    b"../../../victim/.git/reftable/0x1-0x2-a.ref\n": False,
    b"/0x1-0x2-a.ref\n": False,
    b"x\n": False,
}


@pytest.mark.parametrize("content", TABLES)
def test_tables_of_refs_lie_in_their_folder(content: bytes) -> None:
    """A list that names a file beside its own tables is a problem, since git deletes listed files when it packs
    them."""
    assert (JUDGES["tables"](content, b"", Nowhere()) == "") == TABLES[content]


@pytest.mark.parametrize(("judge", "line"), [("packed", "%s refs/heads/a\n"), ("packed", "^%s\n"), ("oids", "%s\n")])
def test_object_ids_have_the_length_of_the_repositorys(judge: str, line: str) -> None:
    """An object id of another length is a problem: git stops at it. Where the settings cannot be read, any may be."""
    folder = Nowhere()
    for folder.oid_bytes, fine in ((20, (40,)), (32, (64,)), (0, (40, 64))):
        for digits in (40, 64):
            content = (line % ("a" * digits)).encode()
            assert (JUDGES[judge](content, b"", folder) == "") == (digits in fine)


_BARE = ("/p/bare.git/HEAD", "/p/bare.git/objects", "/p/bare.git/refs", "/p/link", "/p/link/.git/HEAD")


class InProject(Nowhere):
    """A git folder in the project /p, in which /p/.git, /p/x and /p/bare.git are no links, and /p/link.git is one."""

    def holds(self, path: str) -> bool:
        real = posixpath.normpath(path)
        return f"{real}/".startswith("/p/") and not real.startswith("/p/link.git")

    def reaches(self, path: str, *, beside: str) -> bool:
        assert beside == ""
        return path in ("/p", "/p/.git", "/p/x", "/p/x/.git/HEAD", "/p/bare.git", "/p/empty", *_BARE)


class Merging(Nowhere):
    """An admin folder of the worktree /p/w in the midst of a merge, with the entry `a` in its index."""

    def holds(self, path: str) -> bool:
        return path == "/p/w/.git"

    def reaches(self, path: str, *, beside: str) -> bool:
        return (path, beside) == ("../own/objects", "objects")

    def is_named_by(self, path: str) -> bool:
        return path == "/host/w/.git"

    def is_common(self, path: str) -> bool:
        return path == "../.."

    def is_own_worktree(self, path: str) -> bool:
        return path == "/p/w"

    def has_entries(self, paths: frozenset[bytes]) -> bool:
        return paths <= {b"a"}

    def has(self, name: str) -> bool:
        return name == "MERGE_HEAD"


# By judge: contents that may stay, and contents that may not.
FOLDERS = {
    "alternates": ([b"", b"# x\n", b"../own/objects\n"], [b"/o/objects\n", b"../own\n", b'"../own/objects"\n']),
    "autostash": ([_OID + b"\n"], [b"", b"x\n"]),
    "commondir": ([b"../..\n"], [b"", b"/o\n", b"../..\n/o\n"]),
    "config": ([b"[core]\n\tworktree = /p/w\n"], [b"[core]\n\tworktree = /o\n"]),
    "conflicts": ([b"", _OID + b"\ta\0"], [_OID + b"\tb\0", _OID + b"\ta"]),
    "empty": ([b""], [b"* filter=x\n"]),
    "gitdir": ([b"/p/w/.git\n", b"/host/w/.git\n"], [b"\n", b"/o/.git\n", b"/p/w\n", b"/o\n/p/w/.git\n"]),
    "own_common": ([b".\n"], [b"", b"/o\n"]),
}


@pytest.mark.parametrize("judge", FOLDERS)
def test_files_that_lead_elsewhere(judge: str) -> None:
    """A file that leads to a place may name one of the project, or of the repository itself, and no other."""
    fine, wrong = FOLDERS[judge]
    assert [content for content in fine if JUDGES[judge](content, b"", Merging())] == []
    assert [content for content in wrong if not JUDGES[judge](content, b"", Merging())] == []


WORKTREE = b"[core]\n\tworktree = /o\n"


@pytest.mark.parametrize(
    ("judge", "content"), [("alternates", b"/o/objects\n"), ("gitdir", b"/o/.git\n"), ("config", WORKTREE)]
)
def test_a_place_that_was_there_may_stay(judge: str, content: bytes) -> None:
    """A place outside may stay if the host named it."""
    assert JUDGES[judge](content, content, Merging()) == ""


class PastLink(Merging):
    """A folder from which each way leads past a new link."""

    def leads_past_link(self, path: str) -> bool:
        return True


def test_a_worktree_behind_a_new_link_is_another() -> None:
    assert JUDGES["config"](WORKTREE, WORKTREE, PastLink())


def test_a_file_that_omac_pins_stays_as_it_was() -> None:
    """A file that was not empty, and is now, was changed; an autostash without a merge would be applied later."""
    assert JUDGES["empty"](b"", b"* -diff\n", Nowhere())
    assert JUDGES["autostash"](_OID, b"", Nowhere())


def cleaned(settings: str, before: str = "", folder: JudgedFolder | None = None) -> str:
    """Return the settings of a new configuration that stay; the judge accepts the result."""
    folder = folder or Nowhere()
    content = CLEANERS["without_problems"](settings.encode(), before.encode(), folder)
    assert JUDGES["config"](content, before.encode(), folder) == ""
    return content.decode()


def test_settings_that_were_there_may_stay() -> None:
    before = "[core]\n\thooksPath = .husky\n"
    assert JUDGES["config"](f"{before}[core]\n\tpager = x\n".encode(), before.encode(), Nowhere()) == "sets core.pager"
    assert "pager" not in cleaned(f"{before}[core]\n\tpager = x\n", before)
    assert "hookspath" in cleaned(before, before)


def test_a_fetch_writes_everything_in_a_bare_repository_alone() -> None:
    """A remote of a bare repository may fetch all refs, as for a mirror; elsewhere a fetch writes only refs named after
    its remote."""
    mirror = '[remote "up"]\n\turl = https://a.example/x\n\tfetch = +refs/*:refs/*\n\tmirror = true\n'
    assert cleaned(f"[core]\n\tbare = true\n{mirror}").count("\n\t") == 4
    assert "fetch" not in cleaned(f"[core]\n\tbare = false\n{mirror}")
    assert "fetch" not in cleaned(f"[core]\n\tbare = true\n\tworktree = ..\n{mirror}")
    option = mirror.replace('"up"', '"--upload-pack=x"')
    assert cleaned(f"[core]\n\tbare = true\n{option}").count("\n\t") == 1


@pytest.mark.parametrize(
    "url", ["/p", "/p/.", "file:///p", "/p/x", "/p/bare.git", "https://a.example/x", "h.example:x"]
)
def test_a_remote_leads_to_a_repository_of_the_project_or_far_away(url: str) -> None:
    settings = f'[remote "up"]\n\turl = {url}\n[branch "b"]\n\tremote = up\n[submodule "s"]\n\turl = {url}\n'
    assert cleaned(settings, folder=InProject()).count("\n\t") == 3


@pytest.mark.parametrize(
    "url",
    [
        "/home/me/private",
        "../private",
        "private",
        "file:///home/me/private",
        "file:///p/%78",
        "/p/y",
        "/p/link",
        "/p/empty",
        "/",
    ],
)
def test_it_leads_nowhere_else_on_this_machine(url: str) -> None:
    """A setting that names a removed remote goes with it, since git takes that name for a path. Settings that were
    there before stay."""
    remote = f'[remote "up"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/up/*\n'
    settings = f'{remote}[branch "b"]\n\tremote = up\n[submodule "s"]\n\turl = {url}\n'
    assert cleaned(settings, folder=InProject()) == ""
    assert cleaned(settings, settings, InProject()).count("\n\t") == 4
    far = '[remote "far"]\n\turl = "https://a.example/x"\n'
    assert cleaned(f"{far}\tpushurl = {url}\n", folder=InProject()) == far
