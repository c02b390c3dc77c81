"""A program fills the disk on which omac keeps its records: omac inspects the program's files all the same."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from escape.left_behind import PRELUDE, Ground, ground_of
from escape.test_last_look import ARMED, NESTED, begun
from polling import eventually
from real_sandbox import USERS, box

DISK_KIB = 16_000
SETTINGS = 'seq 3000 | sed "s/.*/[branch \\"&\\"]\\n\\tdescription = of a branch/" > .git/config; '
FILL = (
    "dd if=/dev/zero of=ballast bs=4096 2>/dev/null; for i in $(seq 100); do echo x > b$i || break; done 2>/dev/null; "
)
ARMED_LATE = ARMED + "cp aaa/.git/config aaa/later; git -C aaa config --unset core.fsmonitor; "
LAST = "mv aaa/later aaa/.git/config"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Yield a ground whose home and state are on one small disk."""
    with ground_of(request.param) as made:
        world = made.world
        subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "tmpfs", str(world.top)), check=True)
        try:
            for folder in (world.top, world.state, world.home, world.workdir, made.marks, made.temporary):
                made.give_folder(folder)
            made.renew("plain")
            shutil.rmtree(world.top / "template-plain")
            yield made
        finally:
            subprocess.run(("umount", "--lazy", str(world.top)), check=True)


@pytest.mark.parametrize("settings", ["", SETTINGS], ids=["", "with settings"])
def test_at_the_end(ground: Ground, settings: str) -> None:
    """The end of a launch inspects the program's files although it cannot record the settings that it finds."""
    done = ground.agent(f"{ARMED_LATE}{settings}{FILL}{LAST}")
    assert "Traceback" not in done.err
    _require_harmless(ground, done.err)
    assert not _records(ground)


def test_by_the_next_one(ground: Ground) -> None:
    """The last launch to end in a project inspects the files of an earlier one whose record is cut off."""
    process = begun(ground, "bash", "-c", "touch up; while [ ! -e ended ]; do sleep 0.05; done")
    eventually(lambda: (ground.project / "up").exists(), 20, "the first one runs")
    first = ground.agent(f"{ARMED_LATE}{SETTINGS}{FILL}{LAST}")
    _remove_ballast(ground)
    ground.world.give(ground.project / "ended")
    _, last = process.communicate(timeout=60)
    assert "Traceback" not in first.err + last
    _require_harmless(ground, first.err + last)  # it may be set aside while the first one still runs
    assert "the copy of the settings in the sandbox cannot be read" in last
    assert not _records(ground)


@pytest.fixture(params=USERS, ids=lambda uid: f"uid{uid}")
def apart(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Yield a ground whose state is on another disk than the project."""
    with ground_of(request.param) as made:
        made.renew("plain")
        state = made.world.state
        subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k,mode=700", "tmpfs", str(state)), check=True)
        try:
            made.give_folder(state)
            yield made
        finally:
            subprocess.run(("umount", "--lazy", str(state)), check=True)


def test_of_another_disk(apart: Ground) -> None:
    """Settings that cannot be moved to the state directory, whose disk is full, get a name that git ignores."""
    wait = "until [ -e {} ]; do sleep 0.05; done; ".format
    process = begun(apart, "bash", "-c", f"{PRELUDE}touch up; {wait('on')}{ARMED}touch done; {wait('ended')}")
    eventually(lambda: (apart.project / "up").exists(), 20, "it runs")
    ballast = apart.world.state / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    apart.world.give(apart.project / "on")
    eventually(lambda: (apart.project / "done").exists(), 20, "the deed is done")
    apart.world.give(apart.project / "ended")
    _, said = process.communicate(timeout=60)
    apart.goes_on(("aaa",), ("status",))
    assert not (apart.marks / "mark").exists(), said
    assert "core.fsmonitor" in said


def test_unreadable_files_and_another_disk(apart: Ground) -> None:
    """A file that cannot be copied to another disk, since nobody may read it, gets a name that git ignores."""
    done = apart.agent(NESTED + "evil aaa/.git/hooks/pre-commit; chmod 111 aaa/.git/hooks/pre-commit")
    hook = apart.project / "aaa/.git/hooks/pre-commit"
    assert not hook.exists(), done
    assert f"{hook}: " in done.err


def test_of_a_disk_that_takes_no_change_any_more(apart: Ground) -> None:
    """A launch whose state directory became read-only meanwhile inspects its program's files all the same, and returns
    its status."""
    armed = f"{PRELUDE}touch up; until [ -e on ]; do sleep 0.05; done; {ARMED}exit 3"
    process = begun(apart, "bash", "-c", armed)
    eventually(lambda: (apart.project / "up").exists(), 20, "it runs")
    state = str(apart.world.state)
    subprocess.run(("mount", "--bind", state, state), check=True)
    try:
        subprocess.run(("mount", "-o", "remount,bind,ro", state), check=True)
        apart.world.give(apart.project / "on")
        _, said = process.communicate(timeout=60)
        assert (process.returncode, "core.fsmonitor" in said, "Traceback" in said) == (3, True, False), said
        apart.goes_on(("aaa",), ("status",))
        assert not (apart.marks / "mark").exists(), said
        shown = apart.world.run("true")
        assert f"  try: findmnt --target {state}" in shown.err, shown
    finally:
        subprocess.run(("umount", "--lazy", state), check=True)
    assert apart.world.run("true").status == 0
    assert not _records(apart)


@pytest.mark.parametrize("uid", USERS)
def test_at_launch(uid: int) -> None:
    """A launch is refused where its project's disk is full, with the command that shows that, and leaves nothing."""
    with box(uid) as world:
        size = f"size=400k,uid={uid},gid={uid},mode=700"
        subprocess.run(("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(world.workdir)), check=True)
        try:
            assert world.host("git", "init", "-q").status == 0
            before = sorted(world.workdir.rglob("*"))
            world.host("sh", "-c", "cat /dev/zero > ballast")
            done = world.run("true")
            assert (done.status, "No space left on device" in done.err, "df -h" in done.err) == (7, True, True), done
            (world.workdir / "ballast").unlink()
            assert sorted(world.workdir.rglob("*")) == before
            assert world.run("true").status == 0
        finally:
            subprocess.run(("umount", "--lazy", str(world.workdir)), check=True)


def _require_harmless(ground: Ground, said: str) -> None:
    _remove_ballast(ground)
    ground.goes_on(("aaa",), ("status",))
    assert not (ground.marks / "mark").exists(), said
    assert "core.fsmonitor" in said


def _records(ground: Ground) -> list[Path]:
    return [path for path in (ground.world.state / "inspections").iterdir() if path.name != "lock"]


def _remove_ballast(ground: Ground) -> None:
    for path in (*ground.project.glob("b[0-9]*"), ground.project / "ballast"):
        path.unlink(missing_ok=True)
