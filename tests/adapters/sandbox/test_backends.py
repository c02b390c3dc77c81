"""Choice of a sandbox's backend, and warnings where the kernel is older than the policy requires."""

import pytest

from omac.adapters.linux import host_programs
from omac.adapters.sandbox import backends, landlock
from omac.domain.sandbox.confinement import Policy
from omac.domain.sandbox.request import SandboxRequest


@pytest.mark.parametrize(
    ("known", "words"),
    [(7, []), (5, ["Linux 6.12"]), (3, ["Linux 6.12", "Linux 6.7"]), (1, ["Linux 6.12", "Linux 6.7", "Linux 5.19"])],
)
def test_an_older_kernel_is_spoken_of(
    known: int, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning names each missing protection and the Linux that has it; without a network fewer are missing."""
    monkeypatch.setattr(landlock, "abi", lambda: known)
    monkeypatch.setattr(host_programs, "find", lambda name: f"/usr/bin/{name}")
    for network in ("host", "none"):
        policy = Policy("/w", (), {}, network=network, fence=("/w/.git",))
        assert backends.chosen(SandboxRequest(), policy).name == "bubblewrap"
        assert bool(policy.fence) == (known >= landlock.FENCE_ABI)
        stderr = capsys.readouterr().err
        expected = words if network == "host" else [word for word in words if word == "Linux 5.19"]
        assert all(word in stderr for word in expected)
        assert stderr.count("can refuse that") == len(expected)
