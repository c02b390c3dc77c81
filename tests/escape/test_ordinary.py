"""Ordinary work in a sandbox: omac sets nothing aside, and git's state afterwards is the same as without omac."""

import contextlib
import difflib
import shutil
from collections.abc import Iterator

import pytest
from escape.left_behind import Ground, ground_of
from escape.ordinary import LOOK, WORK
from real_sandbox import USERS
from tiers import some


@pytest.fixture(scope="module")
def grounds() -> Iterator[dict[int, Ground]]:
    """Yield a home of each user's, renewed for each piece of work."""
    with contextlib.ExitStack() as ends:
        yield {uid: ends.enter_context(ground_of(uid)) for uid in USERS}


@pytest.mark.parametrize(("name", "uid"), some([(name, USERS[at % len(USERS)]) for at, name in enumerate(WORK)], of=12))
def test_as_without(grounds: dict[int, Ground], name: str, uid: int) -> None:
    """Objects, refs, index, status, settings and files are the same with omac and without; omac sets nothing aside."""
    work, ground = WORK[name], grounds[uid]
    if missing := [program for program in work.needs if shutil.which(program) is None]:
        pytest.skip(f"{missing} is not installed")
    states: list[list[str]] = []
    for guarded in (False, True):
        ground.renew(work.layout)
        ground.person(work.before, extra=ground.told())
        done = ground.agent(work.does) if guarded else ground.without_omac(work.does)
        states.append(ground.person(LOOK).out.splitlines())
    difference = "\n".join(difflib.unified_diff(states[0], states[1], "without", "within", lineterm="", n=0))
    assert not difference, f"{difference}\n{done.out}{done.err}"
    assert not ground.set_aside(), done
    assert "set aside" not in done.err
