"""tools/compose/skill_policies.py: the policy that a run was started with, narrowed by each project."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from omac.domain.directories.skill_plan import SkillPolicy
from omac.domain.kernel.refusal import Refusal
from omac.tools.compose.skill_policies import ServePolicies


def policies(home: Path, flags: dict[str, str | None] | None = None, **variables: str) -> ServePolicies:
    return ServePolicies(flags or {}, {"HOME": str(home), **variables})


def project(folder: Path, text: str) -> str:
    """Return a project with these settings of its own."""
    (folder / ".omac").mkdir(parents=True)
    (folder / ".omac" / "settings.toml").write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("flags", "text", "expected"),
    [
        ({}, "", SkillPolicy()),
        ({}, "[serve]\nauto_register = false\n", SkillPolicy(auto_register=False)),
        ({}, '[serve]\nunapproved = "allow"\nbundle_drift = "accept"\n', SkillPolicy()),
        ({"serve.unapproved": "allow"}, '[serve]\nunapproved = "refuse"\n', SkillPolicy("allow")),
        ({}, "[serve\nnonsense", SkillPolicy()),
    ],
)
def test_a_project_only_narrows(
    tmp_path: Path, flags: dict[str, str | None], text: str, expected: SkillPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    """A project's settings that would widen the policy are ignored, and reported once. The user's flag takes
    precedence."""
    serving = policies(tmp_path, flags)
    workdir = project(tmp_path / "w", text)
    for _ in range(2):
        assert trio.run(serving.policy, workdir) == expected
    assert trio.run(serving.policy, "") == serving.asked, "what all projects share is no project's to narrow"
    messages = [record.message for record in caplog.records]
    assert len(messages) == len(set(messages))
    if "accept" in text or "nonsense" in text:
        assert any(workdir in message for message in messages)


def test_confining_is_refused_by_name(tmp_path: Path) -> None:
    """The policy `confine` is refused wherever it is set, until sidecars can be confined. The fix names where it is
    set."""
    ways: dict[str, Callable[[], ServePolicies]] = {
        "--unapproved refuse": lambda: policies(tmp_path, {"serve.unapproved": "confine"}),
        "unset OMAC_SERVE_UNAPPROVED": lambda: policies(tmp_path, OMAC_SERVE_UNAPPROVED="confine"),
    }
    for fix, make in ways.items():
        with pytest.raises(Refusal) as caught:
            make()
        assert (caught.value.reason, caught.value.fix) == ("sandbox-unavailable", (fix,))
        assert "confine" in caught.value.message
