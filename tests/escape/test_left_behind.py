"""Files that an agent leaves among git's run nothing and overwrite nothing when a person goes on working there."""

import re
from collections.abc import Iterator

import pytest
from escape.checkout_deeds import CHECKOUTS
from escape.deeds import DEEDS, SETTINGS
from escape.left_behind import OFTEN, Ground, ground_of, judged
from escape.settings_deeds import SETTINGS_DEEDS
from real_sandbox import FEWER_USERS, USERS
from tiers import some

ALL = DEEDS | CHECKOUTS | SETTINGS_DEEDS


@pytest.fixture(scope="module", params=FEWER_USERS, ids=lambda uid: f"uid{uid}")
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Yield a person's home, renewed for each deed."""
    with ground_of(request.param) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "ground"),
    some([(name, USERS[at % len(USERS)]) for at, name in enumerate(ALL)], of=11),
    indirect=["ground"],
)
def test_nothing_comes_of_it(ground: Ground, name: str) -> None:
    """A deed runs nothing on the host and changes nothing outside; git goes on with files that are no part of it."""
    outcome = judged(ground, ALL[name], guarded=True)
    assert not outcome.succeeded, outcome
    assert not outcome.missing, outcome
    assert "Traceback" not in outcome.output


@pytest.mark.full
@pytest.mark.parametrize("ground", FEWER_USERS[:1], ids=lambda uid: f"uid{uid}", indirect=True)
@pytest.mark.parametrize("name", ALL)
def test_without_a_sandbox_it_succeeds(ground: Ground, name: str) -> None:
    """The twin: the same deed, done on the host, is an attack."""
    outcome = judged(ground, ALL[name], guarded=False)
    assert outcome.succeeded, outcome


@pytest.mark.full
@pytest.mark.parametrize("guarded", [True, False])
def test_settings_of_nested_repositories(ground: Ground, guarded: bool) -> None:
    """The host's git obeys no nested setting of a program or path, and repositories stay; without omac it obeys all."""
    ground.renew("plain")
    before = ground.outside()
    lines = [
        f'(MARK="{ground.marks}/{_plain(name)}"; X=$W/p/{_plain(name)}; evil $X; mkdir -p n/{_plain(name)};'
        f" cd n/{_plain(name)}; git init -q .; echo hi > README; git add README; git commit -qm one; {script}\n)"
        for name, script in SETTINGS.items()
    ]
    script = "\n".join(lines)
    done = ground.agent(script) if guarded else ground.without_omac(script)
    for mark in ground.marks.iterdir():
        mark.unlink()  # what ran while it was planted
    where = [f"n/{_plain(name)}" for name in SETTINGS]
    output = ground.goes_on(where, OFTEN).out
    obeyed = {name for name in SETTINGS if (ground.marks / _plain(name)).exists()}
    if ground.outside() != before:
        obeyed.add("core.worktree")
    assert obeyed == (set() if guarded else set(SETTINGS)), output
    missing = [name for name in SETTINGS if not (ground.project / "n" / _plain(name) / ".git" / "HEAD").exists()]
    assert not missing, done


def _plain(name: str) -> str:
    return re.sub("[^a-zA-Z]+", "-", name)
