"""tools/compose/skill_policies.py: what a run was asked to do, and what each project narrows it to."""

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
    """A project whose own settings say this."""
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
    """What it says beyond that is ignored, and told once; a person's flag comes first."""
    asked = policies(tmp_path, flags)
    workdir = project(tmp_path / "w", text)
    for _ in range(2):
        assert trio.run(asked.policy, workdir) == expected
    assert trio.run(asked.policy, "") == asked.asked, "what all projects share is no project's to narrow"
    told = [record.message for record in caplog.records]
    assert len(told) == len(set(told))
    if "accept" in text or "nonsense" in text:
        assert any(workdir in message for message in told)


def test_confining_is_refused_by_name(tmp_path: Path) -> None:
    """Until sidecars can be confined; wherever it was said."""
    ways: dict[str, Callable[[], ServePolicies]] = {
        "--unapproved refuse": lambda: policies(tmp_path, {"serve.unapproved": "confine"}),
        "unset OMAC_SERVE_UNAPPROVED": lambda: policies(tmp_path, OMAC_SERVE_UNAPPROVED="confine"),
    }
    for fix, asked in ways.items():
        with pytest.raises(Refusal) as caught:
            asked()
        assert (caught.value.reason, caught.value.fix) == ("sandbox-unavailable", (fix,))
        assert "confine" in caught.value.message
