"""Approvals and values by repository, through the real command line and a real server. They hold in each worktree of it
for exactly the approved files; a folder that only claims to be a worktree gets none."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from nested_worktree import git
from polling import eventually
from real_omac import Done, Omac, Serving
from valued_skill import typed, valued, with_vault

from omac.domain.sidecars.sidecar import SpawnRequested
from omac.domain.skills.registration import Approved

SECRET = b"abcd-of-the-repository"


def repository(project: Path) -> Path:
    """Make the project a repository with all of its files, and return the project."""
    git("init", "-q", cwd=project)
    git("add", "-A", cwd=project)
    git("commit", "-q", "-m", "skills", cwd=project)
    return project


def worktree(main: Path, name: str) -> Path:
    """Add a linked worktree beside the main checkout."""
    git("worktree", "add", "-q", str(main.parent / name), cwd=main)
    return main.parent / name


def listed(omac: Omac, project: Path, skill: str = "echo") -> dict[str, Any]:
    """Return a skill of a project from `omac list`."""
    rows = map(json.loads, omac.ok("list", "--workdir", str(project), "--json").splitlines())
    (row,) = [row for row in rows if row["name"] == skill]
    return dict(row)


def state(omac: Omac, project: Path, skill: str = "echo") -> str:
    return str(listed(omac, project, skill)["state"])


@pytest.fixture
def main(omac: Omac) -> Path:
    """Return a repository with the echo skill, approved by repository."""
    main = repository(omac.project("main"))
    omac.ok("approve", "echo", "--workdir", str(main), "--repository")
    return main


def test_a_skill_is_shown_for_its_repository(omac: Omac) -> None:
    """`omac show --repository` proposes the approval by repository; the skill may be approved or not."""
    project = repository(omac.project("shown"))
    done = omac.run("show", "echo", "--workdir", str(project), "--repository")
    assert (done.status, " --repository --hash " in done.err) == (0, True), done
    omac.ok("approve", "echo", "--workdir", str(project), "--repository")
    assert "not approved" not in omac.ok("show", "echo", "--workdir", str(project), "--repository")


def test_a_skill_is_compared_with_its_approval_by_repository(omac: Omac, main: Path) -> None:
    """`omac diff --repository` compares with what is approved by repository, whatever is approved in the worktree. It
    proposes, as `omac show --repository` and `omac register --repository` do, commands about the repository."""
    program, where = main / ".agents/skills/echo/sidecar.py", ("--workdir", str(main))
    program.write_text(program.read_text() + "# mine\n")
    omac.ok("approve", "echo", *where)
    assert omac.run("diff", "echo", *where).status == 0
    done = omac.run("diff", "echo", *where, "--repository")
    assert (done.status, "+# mine" in done.out) == (1, True), done
    shown, registered = (omac.run(word, "echo", *where, "--repository") for word in ("show", "register"))
    for compare in (shown.err, registered.err):
        (line,) = [line for line in compare.splitlines() if "try: omac diff" in line]
        assert omac.run(*shlex.split(line.partition("omac ")[2])).out == done.out
    omac.ok(*shlex.split(done.err.partition("try: omac ")[2]))
    assert omac.run("diff", "echo", *where, "--repository").status == 0


def test_a_skill_without_an_approval_by_repository(omac: Omac) -> None:
    """`omac diff --repository` is refused where only the worktree has an approval, and proposes what shows the skill
    for the repository."""
    project = repository(omac.approved("own"))
    done = omac.run("diff", "echo", "--workdir", str(project), "--repository")
    assert (done.status, "is not approved by repository: nothing to compare with" in done.err) == (9, True), done
    assert done.err.endswith(f"  try: omac show echo --workdir {project} --repository\n")


def test_approvals_of_different_files_in_a_worktree_and_by_repository(omac: Omac) -> None:
    """A repository's approval of all files that are there runs, and is shown, before a worktree's own of the files
    without those that the code's hash leaves out. Behind that approval's end, the other one's files run."""
    project, where = repository(omac.approved("main")), ("--workdir", str(omac.root / "main"))
    added = project / ".agents/skills/echo/node_modules/added.js"
    added.parent.mkdir()
    added.write_text("1")
    serving = omac.serve()
    serving.activate(project)
    omac.ok("approve", "echo", *where, "--repository")
    own, shared = (record.event.digest for record in omac.events(Approved))
    assert own != shared

    def runs(digest: str) -> bool:
        spec = omac.events(SpawnRequested)[-1].event.spec
        return (spec.digest, serving.activate(project)["skills"][0]["state"]) == (digest, "ready")

    eventually(lambda: runs(shared), 20.0, "what the repository approved")
    assert shared in omac.ok("show", "echo", *where)
    omac.ok("revoke", "echo", *where, "--repository")
    eventually(lambda: runs(own), 20.0, "what the worktree approved")
    assert own in omac.ok("show", "echo", *where)


# ---- the attacker's tests ----


def test_a_forged_pointer_inherits_nothing(omac: Omac, main: Path) -> None:
    """Copied files inherit nothing from a `.git` file that names the repository or one of its worktrees."""
    linked = worktree(main, "one")
    forged = omac.project("forged")
    for target in (main / ".git", main / ".git/worktrees/one"):
        (forged / ".git").write_text(f"gitdir: {target}\n")
        assert state(omac, forged) == "not registered"
    admin = forged / "x/worktrees/f"
    admin.mkdir(parents=True)
    (admin / "commondir").write_text(f"{main}/.git\n")
    (admin / "gitdir").write_text(f"{forged}/.git\n")
    (forged / ".git").write_text(f"gitdir: {admin}\n")
    serving = omac.serve()
    assert serving.skill(forged)["state"] == "broken"
    assert serving.skill(linked)["state"] == "ready"
    done = omac.run("approve", "echo", "--workdir", str(forged), "--repository")
    assert done.status == 7
    assert "/commondir names" in done.err


def test_links_and_copies_inherit_nothing(omac: Omac, main: Path) -> None:
    """A linked `.git` and a worktree copied or moved by hand inherit nothing; git's own move keeps the approval."""
    source = worktree(main, "one")
    linked = omac.project("linked")
    (linked / ".git").symlink_to(main / ".git")
    shutil.copytree(source, omac.root / "copied")
    assert [state(omac, folder) for folder in (linked, omac.root / "copied")] == ["not registered"] * 2
    git("worktree", "move", str(source), str(omac.root / "moved"), cwd=main)
    assert state(omac, omac.root / "moved") == "approved"
    (omac.root / "moved").rename(omac.root / "by-hand")
    assert state(omac, omac.root / "by-hand") == "not registered"


def test_a_command_that_names_the_live_folder_runs_the_copy(omac: Omac) -> None:
    """A command with the path of the folder that was approved runs the copy in other worktrees, too, and not what has
    become of that folder."""
    main = repository(omac.project("main"))
    folder = main / ".agents/skills/echo"
    meta = (folder / "omac.yaml").read_text()
    (folder / "omac.yaml").write_text(meta.replace('"sidecar.py"', f'"{folder}/sidecar.py"'))
    git("commit", "-q", "-a", "-m", "an absolute path", cwd=main)
    linked = worktree(main, "one")
    omac.ok("approve", "echo", "--workdir", str(main), "--repository")
    marker = omac.root / "ran"
    (folder / "sidecar.py").write_text(f"open({str(marker)!r}, 'w')\n")
    assert omac.serve().skill(linked)["state"] == "ready"
    assert not marker.exists()


@pytest.mark.full
def test_a_changed_file_in_one_worktree(omac: Omac, main: Path) -> None:
    """A changed file ends the approval in its worktree alone, even a file that the bundle hash leaves out."""
    first, second = worktree(main, "one"), worktree(main, "two")
    program = first / ".agents/skills/echo/sidecar.py"
    program.write_text(program.read_text() + "# changed\n")
    (second / ".agents/skills/echo/dist").mkdir()
    (second / ".agents/skills/echo/dist/planted.js").write_text("x")
    assert [state(omac, tree) for tree in (main, first, second)] == ["approved", "changed", "changed"]
    serving = omac.serve()
    assert [serving.skill(tree)["state"] for tree in (main, first, second)] == ["ready", "broken", "broken"]
    done = omac.run("diff", "echo", "--workdir", str(first))
    assert done.status == 1
    assert "+# changed" in done.out


def test_a_nested_clone_inherits_nothing(omac: Omac, main: Path) -> None:
    """A clone inside the main checkout inherits nothing, though its files and commits are the same."""
    git("clone", "-q", str(main), str(main / "nested"), cwd=main)
    assert state(omac, main / "nested") == "not registered"
    serving = omac.serve()
    assert serving.skill(main / "nested")["state"] == "broken"


def test_a_repository_that_was_made_again_inherits_nothing(omac: Omac, main: Path) -> None:
    """A repository that is deleted and made again at the same path, with the same files, inherits nothing."""
    shutil.rmtree(main / ".git")
    repository(main)
    assert state(omac, main) == "not registered"
    omac.ok("approve", "echo", "--workdir", str(main), "--repository")
    assert state(omac, main) == "approved"


def test_another_project_folder_of_the_repository_inherits_nothing(omac: Omac, main: Path) -> None:
    """Another folder of the worktree inherits nothing without an approval of its own, though its files are the same."""
    shutil.copytree(main / ".agents", main / "sub/.agents")
    assert state(omac, main / "sub") == "not registered"
    assert state(omac, main) == "approved"


# ---- what a person has of it ----


def test_a_worktree_made_before_the_approval(omac: Omac) -> None:
    """An approval by repository holds in worktrees made before it, too."""
    main = repository(omac.project("main"))
    linked = worktree(main, "one")
    assert state(omac, linked) == "not registered"
    omac.ok("approve", "echo", "--workdir", str(main), "--repository")
    assert state(omac, linked) == "approved"


def test_one_approval_for_every_worktree(omac: Omac, main: Path) -> None:
    """An approval by repository holds in worktrees made later. The commands list, show, approvals, status and audit
    report that it is by repository."""
    linked = worktree(main, "one")
    common = f"{main}/.git"
    assert listed(omac, linked)["repository"] == common
    assert omac.ok("list", "--workdir", str(linked)).splitlines()[1].split()[1] == "repository"
    serving = omac.serve()
    assert serving.skill(linked)["state"] == "ready"
    assert f"approved for every worktree of {common}" in omac.ok("status")
    assert f"its approval holds for the same files in every worktree of {common}" in omac.ok("show", "echo", cwd=linked)
    (row,) = map(json.loads, omac.ok("approvals", "--json").splitlines())
    assert (row["scope"], row["repository"], row["code"]) == (f"every worktree of {common}", common, "ok")
    assert row["dir"] == ""
    changes = [json.loads(line) for line in omac.ok("audit", "--kind", "skill", "--json").splitlines()]
    (approved,) = [change for change in changes if change["kind"] == "skill.approved"]
    assert (approved["actor"], approved["dir"]) == ("person", common)
    assert approved["detail"].endswith(f"for every worktree of {common}")
    again = omac.ok("approve", "echo", "--workdir", str(linked), "--repository")
    assert "already approved" in again


@pytest.mark.full
def test_an_approval_reaches_worktrees_that_are_online(omac: Omac) -> None:
    """An approval by repository starts the skill in all worktrees that are online, and its revocation stops it in
    all."""
    main = repository(omac.project("main"))
    linked = worktree(main, "one")
    serving = omac.serve()
    trees = (main, linked)
    assert [serving.skill(tree)["state"] for tree in trees] == ["broken", "broken"]
    omac.ok("approve", "echo", "--workdir", str(main), "--repository")
    _await(serving, trees, "ready")
    done = omac.ok("revoke", "echo", "--workdir", str(linked))
    assert f"no longer approved: echo in every worktree of {main}/.git" in done
    _await(serving, trees, "broken")
    assert state(omac, main) == "not approved"
    assert "echo" not in omac.ok("approvals")


@pytest.mark.full
def test_what_was_approved_in_one_worktree_alone_stays(omac: Omac, main: Path) -> None:
    """`revoke --repository` leaves a worktree's own approval. Without the flag, revoking ends the worktree's own
    approval too."""
    linked = worktree(main, "one")
    omac.approve(linked)
    serving = omac.serve()
    assert [serving.skill(tree)["state"] for tree in (main, linked)] == ["ready", "ready"]
    omac.ok("revoke", "echo", "--workdir", str(linked), "--repository")
    _await(serving, (main,), "broken")
    _await(serving, (linked,), "ready")
    omac.ok("approve", "echo", "--workdir", str(main), "--repository")
    done = omac.ok("approve", "echo", "--workdir", str(linked), "--revoke", "--json")
    revoked = [json.loads(line) for line in done.splitlines()]
    assert [row["repository"] for row in revoked] == ["", f"{main}/.git"]
    assert [row["dir"] for row in revoked] == [str(linked)] * 2
    _await(serving, (main, linked), "broken")


def test_a_worktree_that_is_gone_can_still_be_revoked(omac: Omac) -> None:
    """An approval of a removed worktree is revoked by its folder, or by the git folder itself."""
    main = repository(omac.project("main"))
    for meant in (lambda linked: linked, lambda linked: main / ".git"):
        linked = worktree(main, "one")
        omac.ok("approve", "echo", "--workdir", str(linked), "--repository")
        git("worktree", "remove", "--force", str(linked), cwd=main)
        git("branch", "-D", "one", cwd=main)
        assert state(omac, main) == "approved"
        omac.ok("revoke", "echo", "--workdir", str(meant(linked)))
        assert state(omac, main) != "approved"


@pytest.mark.full
def test_a_secret_by_repository(omac: Omac) -> None:
    """A secret by repository reaches the sidecar in each worktree. A worktree's own value takes precedence, and unset
    ends the secret in all."""
    with_vault(omac)
    main = repository(valued(omac, "main"))
    one, two = worktree(main, "one"), worktree(main, "two")
    done = omac.run("secrets", "set", "slack", "TOKEN", "--workdir", str(main), "--repository", stdin=SECRET)
    assert done.status == 0, done
    assert f"for every worktree of {main}/.git" in done.out
    assert "is not approved" in done.err
    own = omac.run("secrets", "set", "slack", "TOKEN", "--workdir", str(two), stdin=b"abcd-own")
    assert own.status == 0, own
    omac.ok("config", "set", "slack", "REGION", "us", "--workdir", str(one), "--repository")
    serving = omac.serve()
    assert serving.skill(one, "slack")["state"] == "broken"
    omac.ok("approve", "slack", "--workdir", str(main), "--repository")
    _await(serving, (main, one, two), "ready", "slack")
    values = [_values(omac, tree) for tree in (one, two)]
    assert [one["TOKEN"] for one in values] == [SECRET.decode(), "abcd-own"]
    assert values[0]["REGION"] == "us"
    assert SECRET not in (omac.state / "journal.db").read_bytes()
    omac.ok("secrets", "unset", "slack", "TOKEN", "--workdir", str(main), "--repository")
    _await(serving, (main, one), "pending_credentials", "slack")
    _await(serving, (two,), "ready", "slack")
    rows = [json.loads(line) for line in omac.ok("audit", "--kind", "secret", "--json").splitlines()]
    assert any(row["kind"] == "secret.removed" and row["dir"] == f"{main}/.git" for row in rows)


def test_a_worktree_is_registered_with_the_values_of_its_repository(omac: Omac) -> None:
    """`omac register` in a worktree asks for no value that the repository gives, while the files are those that the
    repository approved; with others it does."""
    with_vault(omac)
    main = repository(valued(omac, "main"))
    one, two = worktree(main, "one"), worktree(main, "two")
    omac.ok("approve", "slack", "--workdir", str(main), "--repository")
    assert omac.run("secrets", "set", "slack", "TOKEN", "--repository", cwd=main, stdin=SECRET).status == 0
    done = json.loads(omac.ok("register", "slack", "--workdir", str(one), "--no-input", "--json"))
    assert [(secret["name"], secret["from"]) for secret in done["secrets"]] == [("TOKEN", "keep")]
    assert done["missing"] == []
    (two / ".agents/skills/slack/SKILL.md").write_text("---\nname: slack\ndescription: other\n---\n")
    refused = omac.run("register", "slack", "--workdir", str(two), "--no-input")
    assert refused.status == 9, refused
    assert "TOKEN (secret, required)" in refused.err


def test_what_was_given_for_a_repository_that_is_gone(omac: Omac) -> None:
    """A removed repository is deregistered by its former folder, with its values: the store has none left."""
    with_vault(omac)
    main = repository(valued(omac, "main"))
    assert omac.run("secrets", "set", "slack", "TOKEN", "--repository", cwd=main, stdin=SECRET).status == 0
    omac.ok("approve", "slack", "--repository", cwd=main)
    assert json.loads(omac.ok("vault", "status", "--json"))["services"] == 2, "its own, and the default"
    shutil.rmtree(main)
    purge = ("--purge-secrets", "--purge-defaults", "--yes")
    assert omac.run("deregister", "slack", "--workdir", str(main), "--purge-secrets", "--yes").status == 4
    omac.ok("deregister", "slack", "--workdir", str(main), "--repository", *purge)
    assert json.loads(omac.ok("vault", "status", "--json"))["services"] == 0
    assert "slack" not in omac.ok("approvals")
    again = omac.run("deregister", "slack", "--workdir", str(main), "--repository", *purge)
    assert again.status == 4
    assert omac.run("deregister", "--prune", "--workdir", str(main), "--repository").status == 2


def test_an_approval_that_deregistering_leaves(omac: Omac, main: Path) -> None:
    """`omac deregister` reports the approvals that still hold, by repository or for one worktree, and how to end
    them."""
    linked = worktree(main, "one")
    for project in (main, linked):
        omac.ok("approve", "echo", "--workdir", str(project))
    asked = typed(omac, [("go on? [y/N]", b"\n")], "deregister", "echo", "--workdir", str(main))
    assert "this approval ends\r\n" in asked.out, asked
    assert f"it stays approved: echo in {main}/.agents/skills/echo, as in every worktree of {main}/.git" in asked.out
    done = omac.run("deregister", "echo", "--workdir", str(main), "--yes")
    assert "a running server lists it again, as still approved\n" in done.out, done
    assert f"still approved: echo in {main}/.agents/skills/echo, as in every worktree of {main}/.git" in done.err
    assert state(omac, main) == "approved"
    assert f"  try: omac revoke echo --workdir {main} --harness opencode --repository\n" in done.err
    done = omac.run("deregister", "echo", "--workdir", str(main), "--repository", "--yes")
    assert "a running server lists it again, as not approved\n" in done.out, done
    assert f"still approved: echo in {linked}/.agents/skills/echo; to end that approval:\n" in done.err
    assert state(omac, main) == "not registered"
    assert state(omac, linked) == "approved"
    (command,) = [line.removeprefix("  try: ") for line in done.err.splitlines() if "try: " in line]
    omac.ok(*shlex.split(command)[1:])
    assert state(omac, linked) == "not approved"


@pytest.mark.full
def test_a_secret_by_repository_is_not_for_other_code(omac: Omac) -> None:
    """A worktree with separately approved code does not get the secret of the repository."""
    with_vault(omac)
    main = repository(valued(omac, "main"))
    linked = worktree(main, "one")
    program = linked / ".agents/skills/slack/sidecar.py"
    program.write_text(program.read_text() + "# other\n")
    omac.ok("approve", "slack", "--workdir", str(main), "--repository")
    assert omac.run("secrets", "set", "slack", "TOKEN", "--repository", cwd=main, stdin=SECRET).status == 0
    omac.ok("approve", "slack", "--workdir", str(linked))
    serving = omac.serve()
    assert serving.skill(main, "slack")["state"] == "ready"
    assert serving.skill(linked, "slack")["state"] == "pending_credentials"


def test_trust_by_repository(omac: Omac) -> None:
    """`omac trust --repository` states that the approval holds in every worktree; afterwards each worktree has it."""
    main = repository(omac.project("main"))
    linked = worktree(main, "one")
    answers = (("Approve it?", b"y\n"), ("ECHO_SECRET", b"\n"), ("ECHO_GREETING", b"\n"))
    done: Done = typed(omac, answers, "trust", str(linked), "--repository")
    assert done.status == 0, done
    assert f"an approval holds for the same files in every worktree of {main}/.git" in done.out.replace("\r\n", "")
    assert [state(omac, tree) for tree in (main, linked)] == ["approved", "approved"]
    assert "1 approved before" in omac.ok("trust", str(main))


@pytest.mark.full
def test_trust_by_repository_without_a_terminal(omac: Omac) -> None:
    """The proposal for a skill that is approved in one directory alone shows it, and proposes the command that approves
    it by repository."""
    main = repository(omac.project("main"))
    omac.approve(main)
    done = omac.run("trust", "--repository", cwd=main)
    shown = omac.run(*done.err.partition("  try: omac ")[2].split(), cwd=main)
    omac.ok(*shown.err.partition("  try: omac ")[2].split(), "--no-secrets", "--no-fields", cwd=main)
    assert state(omac, worktree(main, "one")) == "approved"


def test_without_a_repository_it_is_refused(omac: Omac) -> None:
    """The refusal outside of a repository proposes the command for the directory alone; that of a global skill, the
    command for all projects."""
    project = omac.project("plain")
    done = omac.run("approve", "echo", "--workdir", str(project), "--repository")
    assert done.status == 2
    assert f"{project} is in no git repository" in done.err
    assert f"try: omac approve echo --workdir {project}  # for this directory alone" in done.err
    assert state(omac, project) == "not registered"
    shutil.copytree(project / ".agents", Path(omac.environment["HOME"]) / ".agents")
    done = omac.run("approve", "echo", "--global", "--repository")
    assert (done.status, "omac approve echo --global\n" in done.err) == (2, True)
    assert omac.ok("approvals", "--json") == ""


def _await(serving: Serving, places: tuple[Path, ...], wanted: str, skill: str = "echo") -> None:
    def holds() -> bool:
        return all(serving.skill(tree, skill)["state"] == wanted for tree in places)

    eventually(holds, 20.0, f"{skill} to be {wanted}")


def _values(omac: Omac, project: Path) -> dict[str, Any]:
    """Return the values that the sidecar got, from its own answer."""
    return dict(json.loads(omac.ok("call", "slack", "/", cwd=project)))


def test_each_command_shows_the_values_that_count(omac: Omac) -> None:
    """Each worktree shows the values of the repository, and its own values over them."""
    with_vault(omac)
    main = repository(valued(omac, "main"))
    linked = worktree(main, "one")
    for tree in (main, linked):
        assert secrets_of(omac, tree)["given"] == "no"
    omac.ok("approve", "slack", "--repository", cwd=main)
    assert omac.run("secrets", "set", "slack", "TOKEN", "--repository", cwd=main, stdin=SECRET).status == 0
    omac.ok("config", "set", "slack", "REGION", "us", "--repository", cwd=main)
    for tree in (main, linked):
        row = secrets_of(omac, tree)
        assert (row["given"], row["store"], row["source"]) == ("yes", "vault", "stored")
        assert row["fingerprint"].startswith("hmac:")
        assert omac.ok("config", "get", "slack", "REGION", cwd=tree) == "us\n"
    approval = json.loads(omac.ok("approve", "slack", "--json", cwd=linked))
    assert (approval["gets"], approval["missing"]) == (["TOKEN", "REGION"], [])
    omac.ok("config", "set", "slack", "REGION", "asia", cwd=linked)
    assert omac.ok("config", "get", "slack", "REGION", cwd=linked) == "asia\n"
    assert omac.ok("config", "get", "slack", "REGION", cwd=main) == "us\n"
    (main / ".agents/skills/slack/note").write_text("changed")  # the approval no longer covers it
    assert secrets_of(omac, main)["fingerprint"] == "<missing>"
    assert omac.ok("config", "get", "slack", "REGION", cwd=main) == "eu\n"


def test_unset_names_the_value_of_the_repository_that_stays(omac: Omac) -> None:
    """Unsetting a value that only the repository has reports that the skill still receives it, and the printed command
    ends it. Unsetting a worktree's own value ends it there."""
    with_vault(omac)
    main = repository(valued(omac, "main"))
    linked = worktree(main, "one")
    omac.ok("approve", "slack", "--repository", cwd=main)
    assert omac.run("secrets", "set", "slack", "TOKEN", "--repository", cwd=main, stdin=SECRET).status == 0
    done = omac.run("secrets", "unset", "slack", "TOKEN", cwd=linked)
    assert "TOKEN was not given to slack" in done.out
    assert "slack still receives TOKEN, given for every worktree of the repository" in done.err
    assert omac.run("secrets", "set", "slack", "TOKEN", cwd=linked, stdin=b"abcd-own").status == 0
    assert "still receives" not in omac.run("secrets", "unset", "slack", "TOKEN", cwd=linked).err
    assert secrets_of(omac, linked)["given"] == "remembered"
    command = next(line for line in done.err.splitlines() if " secrets unset " in line).removeprefix("  try: ")
    ended = omac.run(*shlex.split(command)[1:], cwd=main)
    assert "slack needs TOKEN, and does not run without it" in ended.err
    assert "to deregister slack, and delete all saved defaults:" in ended.err
    assert "; to delete all saved defaults:" in done.err, "in this worktree alone it is not registered"
    assert secrets_of(omac, main)["given"] == "remembered"


def test_a_proposal_names_the_worktree_that_was_meant(omac: Omac) -> None:
    """The commands that `omac deregister --repository` proposes work in any folder: they name the worktree."""
    with_vault(omac)
    main = repository(valued(omac, "main"))
    linked = worktree(main, "one")
    omac.ok("approve", "slack", "--repository", cwd=main)
    assert omac.run("secrets", "set", "slack", "TOKEN", "--repository", cwd=main, stdin=SECRET).status == 0
    asked = omac.run("deregister", "slack", "--repository", cwd=linked)
    fix = f"omac deregister slack --workdir {linked} --repository --yes"
    assert asked.err.endswith(f"  try: {fix}\n"), asked
    done = omac.run(*shlex.split(fix)[1:], cwd=omac.root)
    command = f"omac secrets unset slack TOKEN --workdir {linked} --repository"
    assert f"  try: {command}\n" in done.err, done
    assert "TOKEN is revoked from slack" in omac.ok(*shlex.split(command)[1:], cwd=omac.root)


def test_values_of_a_worktree_and_of_its_repository(omac: Omac) -> None:
    """A value of a worktree's own needs no approval beside that by repository. A value by repository that does not
    reach the skill in the worktree where it is given is reported, with the command that gives it there."""
    with_vault(omac)
    main = repository(valued(omac, "main"))
    omac.ok("approve", "slack", "--repository", cwd=main)
    give = ("secrets", "set", "slack", "TOKEN")
    assert omac.run(*give, cwd=main, stdin=b"abcd-own").err == ""
    assert omac.run("config", "set", "slack", "REGION", "us", cwd=main).err == ""
    kept = omac.run(*give, "--repository", cwd=main, stdin=SECRET)
    assert f"slack in {main} does not receive this value: TOKEN has a value of its own there" in kept.err
    kept = omac.run("config", "set", "slack", "REGION", "eu", "--repository", cwd=main)
    assert f"try: omac config set slack REGION --workdir {main} --harness opencode\n" in kept.err
    omac.ok("secrets", "unset", "slack", "TOKEN", cwd=main)
    removed = omac.run(*give, "--repository", cwd=main, stdin=SECRET)
    reason, command = removed.err.splitlines()
    assert reason == f"slack in {main} does not receive this value: TOKEN was unset there"
    assert omac.run(*shlex.split(command)[2:], stdin=SECRET).status == 0
    assert secrets_of(omac, main)["given"] == "yes"


def test_revoking_names_the_approval_that_there_was(omac: Omac, main: Path) -> None:
    """`omac revoke` names the approvals that it ends, and not the directory's own where that never was."""
    omac.serve().skill(main)  # which registers the skill in this directory
    assert omac.ok("revoke", "echo", cwd=main) == f"no longer approved: echo in every worktree of {main}/.git\n"
    assert omac.ok("revoke", "echo", cwd=main) == f"was not approved: echo in {main}/.agents/skills/echo\n"


def test_an_approval_adopts_what_its_code_was_given(omac: Omac) -> None:
    """An approved skill is reported to need no value that omac adopts for it: one given to the same files elsewhere."""
    with_vault(omac)
    one, two = valued(omac, "one"), valued(omac, "two")
    omac.ok("approve", "slack", cwd=one)
    assert omac.run("secrets", "set", "slack", "TOKEN", cwd=one, stdin=SECRET).status == 0
    (row,) = map(json.loads, omac.ok("approve", "slack", "--json", cwd=two).splitlines())
    assert (row["gets"], row["missing"]) == (["TOKEN"], [])
    assert secrets_of(omac, two)["given"] == "yes"


def secrets_of(omac: Omac, place: Path) -> dict[str, Any]:
    """Return the token's row of `omac secrets list --json`."""
    rows = map(json.loads, omac.ok("secrets", "list", "slack", "--json", cwd=place).splitlines())
    return next(row for row in rows if row["name"] == "TOKEN")
