"""A refusal of an option's wrong value proposes the typed command with a right value, and that command works."""

import json
import shlex
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest
from real_omac import Done, Omac

# An activation in the place of the event behind it, which cannot follow.
SECOND_START = """
    UPDATE event SET kind = begun.kind, body = begun.body
    FROM (SELECT stream, version, kind, body FROM event WHERE kind IN
          (SELECT id FROM name WHERE text = 'directory.activation-requested')) AS begun
    WHERE event.stream = begun.stream AND event.version = begun.version + 1
"""


@pytest.fixture(scope="module")
def used(house: Omac) -> Omac:
    """Return an omac with a few events."""
    project = house.approved("p")
    house.ok("revoke", "echo", "--workdir", str(project))
    return house


def proposals(done: Done) -> list[list[str]]:
    """Return the words of the proposed commands, without the name of the program."""
    lines = [line.removeprefix("  try: ") for line in done.err.splitlines() if line.startswith("  try: ")]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert all(command[0] == "omac" for command in commands), done
    return [command[1:] for command in commands]


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        ("audit --kind skill --outcome dome", "audit --kind skill --outcome done"),
        ("audit --actor x --json", "audit --actor person --json"),
        ("audit --client cloude", "audit --client claude"),
        ("audit --status x", "audit --status 5xx"),
        ("audit --status 9xx", "audit --status 5xx"),
        ("audit --status 499-400", "audit --status 400-499"),
        ("audit --count-by skil", "audit --count-by skill"),
        ("audit --count-by skill,skill", "audit --count-by skill"),
        ("audit --from 9 --to 3", "audit --from 3 --to 9"),
        ("audit --from x", "audit --from 1"),
        ("audit --since 2026-02-01 --until 2026-01-01", "audit --since 2026-01-01 --until 2026-02-01"),
        ("audit --since x", "audit --since 2h"),
        ("audit -n x", "audit -n 20"),
        ("audit --after start --page x", "audit --after start --page 20"),
        ("audit --after start --page 0", "audit --after start --page 100"),
        ("audit --page 5", "audit --page 5 --after start"),
        ("audit --kind skill --after x --page 5", "audit --kind skill --after start --page 5"),
        ("audit verify --from 3 --to 2", "audit verify --from 2 --to 3"),
        ("audit verify --from x", "audit verify --from 1"),
        ("audit verify --from 9999999", "audit verify --from 1"),
        ("replay --at x --json", "replay --at 2h --json"),
        ("export --out e1 --format csw", "export --out e1 --format csv"),
        ("export --out e2 --redact nothing --format csv", "export --out e2 --redact '*.argv' --format csv"),
        ("key move --to fil", "key move --to file"),
        ("cache gc --max-age x --dry-run", "cache gc --max-age 2h --dry-run"),
        ("cache gc --max-size x --dry-run", "cache gc --max-size 20G --dry-run"),
        ("start --no-sandbox --unapproved nope -- true", "start --no-sandbox --unapproved refuse -- true"),
        ("start --no-sandbox --audit=nope -- true", "start --no-sandbox --audit=strict -- true"),
        ("start --limit tmp=x -- true", "start --limit tmp=2G -- true"),
        ("start --network hots -- true", "start --network host -- true"),
        ("start --backend=bwrap -- true", "start --backend=auto -- true"),
        ("start --open-port 0 -- true", "start --open-port 8080 -- true"),
        ("journal seal --before 1h --keep 1h", "journal seal --keep 400d"),
        ("journal prune --before 1h --keep 1h", "journal prune --keep 400d"),
        ("skill new h1 --secret A --secret b-c", "skill new h1 --secret A --secret B_C"),
        pytest.param("top --lines x --json", "top --lines 20 --json", marks=pytest.mark.full),  # one a second
    ],
)
def test_a_wrong_value(used: Omac, typed: str, proposed: str) -> None:
    """The proposed command keeps all other words that were typed, and works."""
    refused = used.run(*typed.split())
    assert refused.status == 2, refused
    first = proposals(refused)[0]
    assert first == shlex.split(proposed)
    done = used.run(*first)
    assert done.status == 0, done


@pytest.mark.parametrize("option", ["--unapproved nope", "--audit nope", "--control-addr 1.2.3.4:0", "--facade-addr x"])
def test_a_wrong_value_of_a_server(used: Omac, option: str) -> None:
    """The command that is proposed for a server keeps its other options; the test does not start it."""
    refused = used.run("serve", "--no-inner", *option.split(), "--root", str(used.root))
    (proposed,) = proposals(refused)
    name = option.split()[0]
    assert proposed[:3] == ["serve", "--no-inner", name]
    assert proposed[4:] == ["--root", str(used.root)]


def test_the_next_page(used: Omac) -> None:
    """The command of the next page has the filters of this one."""
    page = used.run("audit", "--kind", "skill", "--after", "start", "--page", "1")
    (line,) = [line for line in page.err.splitlines() if line.startswith("next: ")]
    words = shlex.split(line)[2:]
    assert words[:3] == ["audit", "--kind", "skill"]
    assert words[5:] == ["--page", "1"]
    (row, cursor) = map(json.loads, used.ok(*words, "--json").splitlines())
    assert (row["kind"], sorted(cursor)) == ("skill.approved", ["cursor"])


def test_a_command_of_another_directory(used: Omac) -> None:
    """A command that is proposed for a project elsewhere names that project or journal."""
    where = ["--workdir", str(used.root / "p")]
    server = used.serve()
    assert proposals(used.run("call", "nobody", "/", *where))[0] == ["list", *where]
    server.end()
    assert proposals(used.run("logs", "nobody", *where))[0] == ["list", *where]
    lost = used.root / "lost.db"
    assert proposals(used.run("ps", "--journal", str(lost))) == [["serve", "--no-inner", "--journal", str(lost)]]


@pytest.mark.full
def test_a_command_for_another_journal(used: Omac) -> None:
    """A command that would change a journal which was named is proposed for that journal, and not for one's own."""
    other = str(used.root / "other.db")
    named = ["--journal", other]
    for _ in range(2):
        used.ok("start", *named, "--", "true", cwd=used.root / "p")
        used.ok("checkpoint", *named)
        used.ok("journal", "seal", *named)
    used.ok("journal", "backup", "early.db", *named)
    used.ok("start", *named, "--", "true", cwd=used.root / "p")

    def proposed(*typed: str) -> list[list[str]]:
        return proposals(used.run(*typed, *named))

    assert proposed("audit", "--skill", "x") == [["audit", "--count-by", "skill", *named]]
    for typed in (["show", "echo"], ["trust"], ["register", "ehco"], ["revoke", "nobody"], ["secrets", "list", "ehco"]):
        done = used.run(*typed, *named, cwd=used.root / "p")
        assert [words[-2:] for words in proposals(done)] == [named] * len(proposals(done)), done
        assert proposals(done) != [], done
    for typed in (["journal", "restore", "early.db"], ["journal", "prune", "--keep", "0s"], ["erase", "p"]):
        assert proposed(*typed) == [[*typed, *named, "--yes"]]
    with closing(sqlite3.connect(other, isolation_level=None)) as connection:
        (damaged,) = connection.execute("SELECT max(position) FROM event").fetchone()
        connection.execute("UPDATE event SET body = x'01' WHERE position = ?", (damaged,))
    assert proposed("journal", "check") == [["journal", "repair", "--dry-run", *named]]
    assert proposed("journal", "repair") == [["journal", "repair", *named, "--yes"]]
    assert proposed("journal", "repair", "--position", "1") == [["journal", "check", *named]]
    used.ok("journal", "repair", "--yes", *named)
    with closing(sqlite3.connect(other, isolation_level=None)) as connection:
        connection.execute(SECOND_START)
    assert proposed("status") == [["journal", "check", *named], ["journal", "repair", *named]]


@pytest.mark.parametrize(
    "typed",
    [
        "start --read MISSING -- true",
        "start --workdir MISSING -- true",
        "sandbox run --allow MISSING -- true",
        "audit verify --checkpoint MISSING",
        "proof verify MISSING --key {key}",
        "journal restore MISSING",
        "journal backup MISSING",
        "skill check MISSING",
        "register echo --workdir p --secrets-from MISSING",
        "call echo / --workdir p -d @MISSING",
    ],
)
def test_a_path_with_several_folders_missing(used: Omac, typed: str) -> None:
    """The proposed command works, though neither the path nor the folder that it would be in exists."""
    typed = typed.format(key=used.ok("key", "show").strip()) if "{key}" in typed else typed
    refused = used.run(*typed.replace("MISSING", "nowhere/deep/path").split())
    assert refused.status != 0, refused
    proposed = refused.err.splitlines()[-1].removeprefix("  try: ")
    assert proposed in (f"ls -ld {used.root}", f"mkdir -p {used.root}/nowhere/deep"), refused
    assert subprocess.run(shlex.split(proposed), check=False).returncode == 0
    shutil.rmtree(used.root / "nowhere", ignore_errors=True)


def test_an_export_into_a_folder_that_does_not_exist(used: Omac) -> None:
    """The proposed command makes the folder, and then the export works."""
    refused = used.run("export", "--out", "none/yet/evidence")
    assert refused.err.endswith(f"{used.root}/none/yet does not exist\n  try: mkdir -p {used.root}/none/yet\n"), refused
    (used.root / "none/yet").mkdir(parents=True)
    used.ok("export", "--out", "none/yet/evidence")


@pytest.mark.full
def test_a_root_that_is_the_home_is_refused_by_its_option(used: Omac) -> None:
    """A refusal of the home as a project names the option that was typed, and proposes nothing about its skills."""
    home = used.environment["HOME"]
    used.ok("skill", "new", "hello", "--workdir", home)
    for words, flag in ((["serve", "--root"], "--root"), (["start", "--workdir"], "--workdir")):
        refused = used.run(*words, home, "--", "true")
        assert f"{flag} {home} is your home folder" in refused.err, refused
        assert f"# folders that {flag} can name in its place" in refused.err
        assert "omac approve" not in refused.err
