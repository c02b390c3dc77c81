"""The audit of what an agent was allowed to do: the options of a run's sandbox, and a run without one."""

from real_omac import Omac
from started import looping


def test_a_run_without_a_sandbox_is_in_the_audit(omac: Omac) -> None:
    """The audit has a row for a run without a sandbox, and while it lives the status has a line."""
    project = omac.project("shop")
    run = looping(omac, project)
    assert "\n  launches with --no-sandbox\n" in omac.ok("status")
    run.end()
    (row,) = omac.audit("--kind", "run")
    assert (row["dir"], row["actor"]) == (str(project), "person")
    assert row["detail"] == "omac start with --no-sandbox"


def test_the_options_of_a_sandbox_are_in_the_audit(omac: Omac) -> None:
    """The row has what the command line and the profile grant together, and the value of no variable."""
    project, extra = omac.project("shop"), omac.root / "more to read"
    extra.mkdir()
    profile = omac.folder / "ci.toml"
    profile.write_text(f'read = ["{extra}"]\n')
    profile.chmod(0o600)
    options = ("--profile", str(profile), "--env", "TOKEN=tok-4711", "--network", "none", "--limit", "tmp=1M")
    assert omac.run("start", *options, "--", "true", cwd=project).status == 0
    (row,) = omac.audit("--kind", "run")
    assert row["detail"].startswith(f"omac start with --read '{extra}' --network none --env TOKEN --limit tmp=1048576")
    assert (
        "tok-4711"
        not in omac.ok("export", "--out", str(omac.folder / "out")) + (omac.folder / "out" / "events.jsonl").read_text()
    )
