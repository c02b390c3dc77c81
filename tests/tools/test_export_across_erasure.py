"""An interrupted `omac export` that goes on after `omac erase` contains no erased field."""

import base64
import fcntl
import json
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from real_omac import Omac
from tiers import some
from tools.test_export_command import FORMATS, verified

from omac.adapters.files.state import StateDir
from omac.domain.access.access import AccessRefused
from omac.domain.kernel import ids
from omac.domain.kernel.event import Cause, Draft
from omac.journal.opening import open_journal
from omac.tools.compose.journals import keys_of

PATH = "/private-basket"
CALLS = 6_000


def called_encrypted(omac: Omac, directory: str, path: str, session: str) -> None:
    """Append calls of no skill, whose paths the directory's key encrypts."""
    state = StateDir(str(omac.state))
    file = str(omac.state / "journal.db")
    log = ids.access_stream(ids.HostId((omac.state / "host-id").read_text().strip()))
    with closing(open_journal(file, "busy", time.time_ns, keys=keys_of(state, file))) as journal:
        request = AccessRefused(directory, None, "nope", session, "GET", path, 404, "unknown-mount")
        cause = Cause("agent")
        groups = [journal.group((Draft(log, None, request),), journal.envelope(cause)) for _ in range(CALLS)]
        journal.commit(groups)


@pytest.fixture
def busy(omac: Omac) -> Omac:
    """Return a host whose export takes a while, with the events of one directory and then of another."""
    omac.approved("shop")
    called_encrypted(omac, str(omac.root / "shop"), PATH, "private-session")
    called_encrypted(omac, str(omac.root / "other"), "/elsewhere", "session")
    return omac


KILLED = """
import os, signal, sys
from omac.tools.compose.export_draft import KeptFile
flush = KeptFile._flush
def flush_and_die(self):
    flush(self)
    if self.bytes > 500_000:
        os.kill(os.getpid(), signal.SIGKILL)
KeptFile._flush = flush_and_die
from omac.tools.entry import main
sys.argv = ["omac", *sys.argv[sys.argv.index("export"):]]
main()
"""


def interrupted(omac: Omac, folder: Path, *options: str) -> Path:
    """Kill an export once a good part is written, with words that will be erased, and return its draft."""
    draft = folder.with_name(f".omac-export-{folder.name}")
    done = omac.process("export", "--out", str(folder), *options, within=(sys.executable, "-c", KILLED))
    assert (done.status, folder.exists(), PATH in texts(draft)) == (-signal.SIGKILL, False, True), done
    return draft


def texts(folder: Path) -> str:
    """Return the content of the files of a folder, with the path also decoded from base64."""
    text = b"".join(path.read_bytes() for path in sorted(folder.iterdir())).decode("latin-1")
    return text.replace(base64.b64encode(msgspec.msgpack.encode(PATH)).decode(), PATH)


@pytest.mark.full
@pytest.mark.parametrize("form", some(FORMATS, of=len(FORMATS)))
def test_it_goes_on_without_what_was_erased(busy: Omac, tmp_path: Path, form: str) -> None:
    """An export that goes on after an erasure has no erased word, verifies, and has the other directory's paths."""
    folder = tmp_path / "bundle"
    draft = interrupted(busy, folder, "--format", form)
    busy.ok("erase", str(busy.root / "shop"), "--yes")
    done = busy.run("export", "--out", str(folder), "--format", form)
    assert (done.status, "it goes on" in done.err) == (0, True), done
    assert not draft.exists()
    assert (PATH in texts(folder), "private-session" in texts(folder)) == (False, False)
    if form != "parquet":
        assert (folder / FORMATS[form]).read_bytes().count(b"/elsewhere") >= CALLS
    assert verified(folder, busy.ok("key", "show").strip()).status == 0


@pytest.mark.full
def test_a_draft_that_nobody_goes_on_with(busy: Omac, tmp_path: Path) -> None:
    """An erasure empties the draft of an export, and leaves a folder beside it that is no draft of this journal."""
    folder = tmp_path / "bundle"
    draft = interrupted(busy, folder)
    foreign = tmp_path / ".omac-export-other"
    foreign.mkdir()
    (foreign / "events.jsonl").write_text(PATH)
    done = busy.run("erase", str(busy.root / "shop"), "--yes")
    assert done.status == 0, done
    assert (PATH in texts(draft), [path.name for path in draft.iterdir()]) == (False, [".progress.json"])
    assert PATH in texts(foreign)
    assert "it goes on" in busy.run("export", "--out", str(folder)).err
    assert verified(folder, busy.ok("key", "show").strip()).status == 0


@pytest.mark.full
def test_a_draft_whose_record_is_pruned(busy: Omac, tmp_path: Path) -> None:
    """A prune empties the draft of an export, which holds what it drops, and which no later erasure would know of."""
    folder = tmp_path / "bundle"
    draft = interrupted(busy, folder)
    busy.ok("checkpoint")
    busy.ok("journal", "seal")
    busy.ok("journal", "prune", "--keep", "0s", "--yes")
    assert (PATH in texts(draft), [path.name for path in draft.iterdir()]) == (False, [".progress.json"])
    done = busy.run("export", "--out", str(folder))
    assert (done.status, "omac export --out NEW" in done.err) == (2, True), done


@pytest.mark.full
def test_beside_an_export(busy: Omac, tmp_path: Path) -> None:
    """An erasure fails while an export is at work on a draft; the next one completes it and empties the draft."""
    draft = interrupted(busy, tmp_path / "bundle")
    held = os.open(draft, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = busy.run("erase", str(busy.root / "shop"), "--yes")
    assert (done.status, "is at work" in done.err, PATH in texts(draft)) == (5, True, True), done
    os.close(held)
    assert "an erasure that was killed is finished" in busy.ok("erase", str(busy.root / "shop"), "--yes")
    assert PATH not in texts(draft)


@pytest.mark.full
@pytest.mark.parametrize("kind", some(["link", "file"], of=2))
def test_a_draft_that_is_none(busy: Omac, tmp_path: Path, kind: str) -> None:
    """An erasure neither follows a link nor stops at a file in the place of a draft."""
    draft, target = interrupted(busy, tmp_path / "bundle"), tmp_path / "kept"
    draft.rename(target)
    if kind == "link":
        draft.symlink_to(target)
    else:
        draft.write_text("a file")
    busy.ok("erase", str(busy.root / "shop"), "--yes")
    assert PATH in texts(target)


@pytest.mark.full
def test_a_choice_by_what_was_erased(busy: Omac, tmp_path: Path) -> None:
    """An export by an erased field is refused when it goes on, since it has other events now; a new one has none."""
    folder, options = tmp_path / "bundle", ("--session", "private-session")
    draft = interrupted(busy, folder, *options)
    busy.ok("erase", str(busy.root / "shop"), "--yes")
    done = busy.run("export", "--out", str(folder), *options)
    assert (done.status, "fields were erased or pruned meanwhile" in done.err, f"rm -r {draft}" in done.err) == (
        2,
        True,
        True,
    ), done
    assert not folder.exists()
    busy.ok("export", "--out", str(tmp_path / "again"), *options)
    assert json.loads((tmp_path / "again" / "manifest.json").read_text())["events"] == 0
    assert verified(tmp_path / "again", busy.ok("key", "show").strip()).status == 0
