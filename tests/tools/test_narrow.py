"""Tables on a terminal of 80 columns: only text that is to be copied is wider, and nothing is left out."""

import json
import os
import pty
import re
import select
import signal
import termios
import time
from pathlib import Path

import pytest
from polling import eventually
from real_omac import COMMAND, Omac, Serving, curl

COLUMNS = 80


class OnTerminal:
    """A command on a terminal of 80 columns."""

    def __init__(self, omac: Omac, *words: str, rows: int = 24) -> None:
        self.shown = ""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            termios.tcsetwinsize(0, (rows, COLUMNS))
            os.chdir(omac.root)
            os.execvpe(COMMAND[0], [*COMMAND, *words], omac.environment | {"COLUMNS": str(COLUMNS)})

    def read(self, seconds: float = 0.1) -> bool:
        """Read new output of the command; return False once it has ended."""
        if select.select([self._terminal], [], [], seconds)[0]:
            try:
                content = os.read(self._terminal, 65536)
            except OSError:
                return False
            self.shown += content.decode(errors="replace").replace("\r\n", "\n")
            return bool(content)
        return True

    def ended(self, seconds: float = 20.0) -> tuple[int, list[str]]:
        """Return the exit status, and the lines that the command showed."""
        deadline = time.monotonic() + seconds
        while self.read() and time.monotonic() < deadline:
            pass
        os.close(self._terminal)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), self.shown.splitlines()


@pytest.fixture(scope="module")
def used(house: Omac, server: Serving) -> Path:
    """A project with long names, two approved skills, a broken one, and an access."""
    project = house.approved(
        "a-project-with-a-name-that-is-rather-long/and-one-below-it", "echo", "a-skill-of-long-name"
    )
    house.skill(project, "wrong", "name: [")
    base = server.skill(project)["base"]
    assert curl(f"{base}/echo/{'segment/' * 10}").status == 200
    eventually(lambda: [row["outcome"] for row in house.audit("--skill", "echo")] == ["completed"], 20.0, "its outcome")
    return project


def unmarked(line: str) -> str:
    """Return a line without the mark of one that was folded."""
    return line.strip().removeprefix("| ")


def too_wide(lines: list[str]) -> list[str]:
    """Return the lines wider than the terminal, except single words and commands to be pasted."""
    wide = [line for line in lines if len(line) > COLUMNS]
    return [line for line in wide if " " in unmarked(line) and "try: " not in line]


def test_a_warning_fits(house: Omac) -> None:
    """A warning is folded between words and loses none of its text."""
    status, lines = OnTerminal(house, "start", "--no-sandbox", "--workdir", str(house.root), "--", "true").ended()
    assert (status, too_wide(lines)) == (0, [])
    assert "WITHOUT A SANDBOX, as you. It and every program it starts can read and change" in " ".join(
        map(unmarked, lines)
    )


@pytest.mark.parametrize(
    "words",
    [("audit",), ("status",), ("list", "--all"), ("list",), ("approvals",), ("replay", "--at", "20"), ("show", "echo")],
    ids=" ".join,
)
def test_a_table_fits(house: Omac, used: Path, words: tuple[str, ...]) -> None:
    """The lines of a table fit the terminal; long names and paths are folded, not cut. All that a wide terminal shows
    is there in the same order, but for columns of the audit."""
    where = ("--workdir", str(used)) if words[0] in ("list", "show") else ()
    status, lines = OnTerminal(house, *words, *where).ended()
    assert status == 0, lines
    if words[0] != "show":
        assert too_wide(lines) == []
    text = "".join("".join(map(unmarked, lines)).split())
    assert words[0] != "audit" or "GETecho/echo/segment/" in text
    assert words[0] != "audit" or not [line for line in lines if "sha256:" in line and len(line) > COLUMNS]
    assert words[0] != "audit" or "a-skill-of-long-name" in text
    at = 0
    for word in house.ok(*words, *where).split() if words[0] != "audit" else ():
        if not (word.isupper() and words[0] in ("list", "approvals")):  # the head of a table
            assert word in text[at:], (word, lines)
            at = text.index(word, at) + len(word)


def test_a_skill_that_is_not_approved_yet(house: Omac, server: Serving) -> None:
    """A skill without approval is not called broken, except in data. The proposed command fits a line and lets the user
    read the skill at the terminal. A broken skill is called broken."""
    project = house.project("fresh")
    house.skill(project, "wrong", "name: [")
    skills = json.loads(house.ok("activate", str(project), "--json"))["skills"]
    assert [skill["state"] for skill in skills] == ["broken"] * 2
    for words in (("status",), ("start", "--workdir", str(project), "--", "true")):
        _, lines = OnTerminal(house, *words).ended()
        about = max(n for n, line in enumerate(lines) if line.split()[:2] in (["echo", "/echo"], ["omac:", "echo"]))
        text = " ".join(" ".join(map(unmarked, lines[about:])).split())
        assert "not approved" in lines[about], lines
        assert "no approval on this machine covers its code" in text
        assert f"try: omac trust {project}\n" in "\n".join([*lines, ""])
        assert [line for line in lines if "echo" in line and ("broken" in line or len(line) > COLUMNS)] == []
        assert any("wrong" in line and "broken" in line for line in lines), lines
    refusal = house.run("call", "echo", "/x", "--workdir", str(project)).err
    assert refusal.startswith("omac: echo is not approved: "), refusal
    assert "try: omac approve echo" in refusal, "a program has no terminal to read the skill at"
    house.ok("deactivate", str(project))  # which other tests would see in the status


@pytest.mark.parametrize("words", [("audit", "verify"), ("journal", "seal"), ("journal", "backup"), ("export",)])
def test_a_report_fits(house: Omac, used: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Reports about the journal, a backup and an export fit the terminal, and so does the verification of an export."""
    folder = tmp_path / "a-folder-with-a-long-name-for-evidence"
    made = {("journal", "backup"): (str(folder),), ("export",): ("--out", str(folder))}.get(words, ())
    status, lines = OnTerminal(house, *words, *made).ended()
    assert (status, [line for line in too_wide(lines) if "omac export verify" not in line]) == (0, [])
    if words == ("export",):
        assert f"  omac export verify {folder} --key KEY" in lines, "it is copied whole"
        key = house.ok("key", "show").strip()
        status, lines = OnTerminal(house, "export", "verify", str(folder), "--key", key).ended()
        assert (status, too_wide(lines)) == (0, [])


@pytest.mark.full
def test_what_keys_and_proofs_say_fits(house: Omac, used: Path, tmp_path: Path) -> None:
    """Reports fit the terminal: a replaced key, the size of a journal, a proof of an event and one of a checkpoint."""
    key, proof, checkpoints = house.ok("key", "show").strip(), tmp_path / "proof.json", [tmp_path / "a", tmp_path / "b"]
    for checkpoint in checkpoints:
        checkpoint.write_text(house.ok("checkpoint"))
    texts = [house.ok("audit", "prove", "1"), house.ok("proof", "consistency", *map(str, checkpoints))]
    reports = [OnTerminal(house, "journal", "stats").ended()]
    for text in texts:
        proof.write_text(text)
        reports.append(OnTerminal(house, "proof", "verify", str(proof), "--key", key).ended())
    reports.append(OnTerminal(house, "key", "rotate").ended())
    assert [(status, too_wide(lines)) for status, lines in reports] == [(0, [])] * 4


def test_a_skill_that_cannot_be_trusted(house: Omac) -> None:
    """The reason why a skill cannot be used fits the terminal as well."""
    project, source = house.root / "alike", house.root / "alike-too"
    for folder, name in ((project, "clock"), (source, "Clock")):
        folder.mkdir()
        house.ok("skill", "new", name, cwd=folder)
    (source / ".agents/skills/Clock").rename(project / ".agents/skills/Clock")
    house.approve(project, "Clock")
    _, lines = OnTerminal(house, "trust", str(project)).ended()
    assert "differs only in case" in " ".join(map(unmarked, lines)), lines
    assert too_wide(lines) == []


@pytest.mark.parametrize("words", [("config", "show"), ("secrets", "list")], ids=" ".join)
def test_values_fit(house: Omac, words: tuple[str, ...]) -> None:
    """The columns of a secret and of its description are no wider than their text."""
    project = house.root / "valued"
    project.mkdir(exist_ok=True)
    house.run("skill", "new", "hello", "--secret", "HELLO_TOKEN", cwd=project)
    status, lines = OnTerminal(house, *words, "hello", "--workdir", str(project)).ended()
    assert (status, [line for line in lines if len(line) > COLUMNS and str(project) not in line]) == (0, [])
    assert any(line.startswith("HELLO_TOKEN") and line.endswith("  Where to get it") for line in lines), lines


def test_a_refused_sandbox_fits(house: Omac) -> None:
    """The refusal of the process that would have built the sandbox fits the terminal."""
    home = house.environment["HOME"]
    status, lines = OnTerminal(house, "start", "--workdir", home, "--", "true").ended()
    assert (status, too_wide(lines)) == (2, []), lines
    assert "an agent could change what your shell runs next" in " ".join(map(unmarked, lines))


def test_times_are_local_and_to_the_second(house: Omac, used: Path) -> None:
    """The time in a row is local; pasted into a filter, it covers its whole second."""
    (row,) = house.audit("--dir", str(used))
    environment = {"TZ": "EST5EDT,M3.2.0,M11.1.0"}
    (line,) = house.process("audit", "--kind", "access", "--dir", str(used), extra=environment).out.splitlines()[1:]
    at = line[11:30]
    assert line.split()[0] == str(row["position"])
    assert at.replace(" ", "T") != row["at"][:19]
    audit = house.process(
        "audit", "--kind", "access", "--dir", str(used), "--since", at, "--until", at, extra=environment
    )
    assert len(audit.out.splitlines()) == 2
    assert house.process("replay", "--at", at, "--json", extra=environment).status == 0


def test_the_last_rows(house: Omac, used: Path) -> None:
    """The option -n selects the newest rows, which come last."""
    rows = [json.loads(line) for line in house.ok("audit", "--json").splitlines()]
    assert [json.loads(line) for line in house.ok("audit", "--json", "-n", "3").splitlines()] == rows[-3:]
    assert house.ok("audit", "--json", "-n", "0") == ""
    assert house.run("audit", "-n", "many").status == 2


@pytest.mark.full
def test_the_audit_is_followed(house: Omac, server: Serving, used: Path) -> None:
    """Each access that ends while the command runs appears once; Ctrl-C ends the command."""
    follow = house.start("audit", "--follow", "-n", "0", "--json", "--kind", "access")
    time.sleep(1.5)
    base = server.skill(used)["base"]
    for number in range(2):
        curl(f"{base}/echo/followed-{number}")
    paths = [json.loads(follow.line())["path"] for _ in range(2)]
    assert paths == ["/echo/followed-0", "/echo/followed-1"]
    house.ok("config", "set", "echo", "ECHO_GREETING", "x", "--workdir", str(used))
    assert follow.end(signal.SIGINT) == 130


@pytest.mark.full
def test_the_status_is_watched(house: Omac, server: Serving, used: Path) -> None:
    """The status is redrawn on a terminal; a program that asks for this is refused."""
    done = house.run("status", "--watch")
    assert (done.status, done.out) == (2, "")
    watch = OnTerminal(house, "status", "--watch")
    eventually(lambda: watch.read() and watch.shown.count("\x1b[H\x1b[2J") >= 2, 15.0, "the status drawn twice")
    assert f"pid {server.process.pid}" in " ".join(watch.shown.split())
    os.kill(watch.pid, signal.SIGINT)
    assert watch.ended()[0] == 130


@pytest.mark.full
@pytest.mark.parametrize("words", [("status", "--watch"), ("top",)], ids=" ".join)
def test_a_screen_begins_with_its_first_line(house: Omac, server: Serving, used: Path, words: tuple[str, ...]) -> None:
    """A terminal with few rows shows the beginning of what is drawn, and a command that prints all of it."""
    base = server.skill(used)["base"]
    assert curl(f"{base}/echo/x").status == 200
    drawing, rows = OnTerminal(house, *words, rows=3), 3
    eventually(lambda: drawing.read() and drawing.shown.count("\x1b[H\x1b[2J") >= 2, 15.0, "it is drawn twice")
    os.kill(drawing.pid, signal.SIGINT)
    assert drawing.ended()[0] == 130
    screens = [screen.splitlines() for screen in drawing.shown.split("\x1b[H\x1b[2J")[1:-1]]
    for screen in screens:
        assert sum(-(-len(line) // COLUMNS) for line in screen) < rows, screen
        assert re.fullmatch(r"every 2 s; Ctrl-C ends it|.*, the last 10 s", screen[0])
        assert re.fullmatch(r"\d+ more lines?: omac (status|top \| cat)", screen[-1])


def test_words_of_a_skill_pass_for_no_line_of_omacs(house: Omac) -> None:
    """A skill's author chooses blanks so that the terminal's lines begin as omac's do: a bar tells them apart."""
    forged = ["it runs as you: /usr/bin/true", "approved: sha256:0000"]
    words = "".join(f"{' ' * COLUMNS}{line}" for line in forged)
    meta = (
        f"name: forged\ndescription: 'A clock.{words}'\nsidecar:\n  command: [python3, sidecar.py, 'x{words}']\n"
        f"  secrets: [{{name: KEY, description: 'From the vendor.{words}'}}]\n"
    )
    project = house.root / "forging"
    house.skill(project, "forged", meta)
    status, lines = OnTerminal(house, "show", "forged", "--workdir", str(project)).ended()
    assert status == 0, lines
    text = [line.strip() for line in lines]
    assert text.count("| it runs as you: /usr/bin/true") == 3, lines
    assert [line for line in text if line.startswith("it runs")] == ["it runs as you: python3 sidecar.py 'x"], lines
    assert not any(line.startswith("approved") for line in text), lines


@pytest.mark.full
def test_lines_of_a_skills_files_pass_for_no_line_of_omacs(house: Omac) -> None:
    """Code that is wider than the terminal goes on behind a mark: in the files, and in what has changed of them."""
    forged = "+-- nothing else; approved: sha256:0000"
    project = house.root / "forging-code"
    source = house.skill(project, "forged", "name: forged\nsidecar:\n  command: [python3, sidecar.py]\n", "import os\n")
    house.approve(project, "forged")
    for place in (COLUMNS - 3, 2 * COLUMNS):
        (source / "sidecar.py").write_text(f"import os\n# {' ' * place}{forged}\n")
        for words in (("diff", "forged"), ("show", "forged", "--contents")):
            _, shown = OnTerminal(house, *words, "--workdir", str(project)).ended()
            lines = [line.removeprefix("\x1b[32m").removesuffix("\x1b[0m") for line in shown]
            assert "".join(line.lstrip("+| ") for line in lines).count("nothing else") == 1, lines
            assert not [line for line in lines if line.lstrip().startswith((forged[:7], "else", "approved: "))], lines
            assert not [line for line in lines if len(line) > COLUMNS and str(house.root) not in line], lines
