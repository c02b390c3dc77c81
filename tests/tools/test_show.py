"""`omac show` and `omac diff`: a skill read before it is approved, and its changes since."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from programs import program_at
from real_omac import Done, Omac

UNREAD = """
import os, sys
reader, writer = os.pipe()
os.dup2(writer, 1)
os.closerange(reader, writer + 1)
os.execvp(sys.argv[1], sys.argv[1:])
"""
HASH = re.compile("sha256:[0-9a-f]{64}")


@pytest.fixture
def project(house: Omac, request: pytest.FixtureRequest) -> Path:
    """Return a project with the echo skill."""
    return house.project(request.node.name.replace("[", "-").replace("]", ""))


def source(project: Path) -> Path:
    return project / ".agents" / "skills" / "echo"


def test_what_a_copy_cannot_hold(house: Omac, project: Path) -> None:
    """A pipe in the folder is refused by every command in the same words, with the command that removes it."""
    pipe = source(project) / "pipe"
    os.mkfifo(pipe)
    for command in ("show", "approve"):
        done = house.run(command, "echo", cwd=project)
        refused = f"\nomac: {pipe} is a FIFO, and a copy has only files, folders and links\n  try: rm {pipe}\n"
        assert (done.status, f"\n{done.err}".endswith(refused)) == (3, True), done


def test_a_skill_before_its_approval(house: Omac, project: Path) -> None:
    """The output has the skill's description, its command, the values it wants, its files with sizes, and the next
    command."""
    done = house.run("show", "echo", cwd=project)
    assert done.status == 0
    for text in (
        f"echo in {source(project)}\n",
        "  it says: Sends requests back as they arrived.",
        "  it runs as you: python3 sidecar.py\n",
        "  agents call it by $OMAC_ECHO_BASE\n",
        "  ECHO_SECRET (secret; optional, not set): ",
        "  ECHO_GREETING (setting, string; not set: hello): ",
        "variables of yours: ECHO_PASSTHROUGH\n",
        "  not approved: sha256:",
        "  3 files:\n",
        " KiB  sidecar.py\n",
    ):
        assert text in done.out, text
    assert re.fullmatch("  try: omac register echo --hash sha256:[0-9a-f]{64}\n", done.err)


def test_a_skill_after_its_approval(house: Omac, project: Path) -> None:
    """The output has the approved hash and the time of the approval. It marks values as set, and never shows them."""
    house.approve(project)
    house.ok("config", "set", "echo", "ECHO_GREETING", "hidden-away", cwd=project)
    done = house.run("show", "echo", "--workdir", str(project))
    report = json.loads(house.ok("show", "echo", "--json", cwd=project))
    assert f": {report['digest']}\n" in done.out
    assert "  approved since 20" in done.out
    assert "ECHO_GREETING (setting, string; set)" in done.out
    assert "hidden-away" not in done.out
    assert (report["state"], report["approved_hash"], report["missing"]) == ("approved", report["bundle_hash"], [])
    assert set(report["sidecar"]["health"]) == {"path", "initial_delay_ms", "timeout_ms", "interval_ms"}
    assert report["files"]["sidecar.py"]["size"] == (source(project) / "sidecar.py").stat().st_size
    assert done.err == ""


def test_limits_are_shown_with_whose_they_are(house: Omac, project: Path) -> None:
    """The stricter of the skill's limits and the user's is shown, with its owner. Defaults are in --json alone, and
    without any limit the text has none."""
    house.skill(project, "plain", "name: plain\nsidecar:\n  command: [python3, sidecar.py]\n")
    assert "limits of its calls" not in house.ok("show", "plain", cwd=project)
    house.skill(
        project, "limited",
        "name: limited\nsidecar:\n  command: [python3, sidecar.py]\n"
        "  limits: {max_body_bytes: 5000, total_timeout_secs: 50, calls_per_second: 7}\n",
    )  # fmt: skip
    settings = {"max_body_bytes": "1000", "total_timeout_secs": "90,echo=5", "all_concurrent_calls": "20"}
    for name, word in settings.items():
        house.ok("settings", "set", f"limits.{name}", word)
    try:
        text = " ".join(house.ok("show", "limited", cwd=project).split())
        limits = json.loads(house.ok("show", "limited", "--json", cwd=project))["limits"]
    finally:
        for name in settings:
            house.ok("settings", "unset", f"limits.{name}")
    assert (
        "limits of its calls: max_body_bytes 1000 (your settings), total_timeout_secs 50 (its omac.yaml), "
        "calls_per_second 7 (its omac.yaml), all_concurrent_calls 20 (your settings)"
    ) in text
    assert limits == {
        "max_body_bytes": {"value": 1000, "whose": "settings"},
        "idle_timeout_secs": {"value": 300, "whose": "default"},
        "total_timeout_secs": {"value": 50, "whose": "omac.yaml"},
        "concurrent_calls": {"value": None, "whose": "default"},
        "calls_per_second": {"value": 7, "whose": "omac.yaml"},
        "all_concurrent_calls": {"value": 20, "whose": "settings"},
        "all_calls_per_second": {"value": None, "whose": "default"},
        "max_head_bytes": {"value": 65536, "whose": "default"},
    }


def test_one_hash_for_an_approval(house: Omac, project: Path) -> None:
    """Every output and refusal has the same hash, over every file. Once the files have changed, each output has the
    hash of before or that of now."""
    (source(project) / "dist").mkdir()
    (source(project) / "dist" / "built.js").write_text("built")
    where = ("--workdir", str(project))
    show, refused = house.run("show", "echo", cwd=project), house.run("approve", "echo", "--hash", "sha256:0", *where)
    hashes = set(HASH.findall(show.out + show.err + refused.err))
    assert len(hashes) == 1, hashes
    (own,) = hashes
    registered = house.ok("register", "echo", "--hash", own, "--no-secrets", "--no-fields", *where)
    outputs = [registered, *(house.ok(*words, cwd=project) for words in (("show", "echo"), ("approve", "echo")))]
    audit = [row["detail"] for row in map(json.loads, house.ok("audit", "--dir", str(project), "--json").splitlines())]
    assert {digest for text in (*outputs, *audit) for digest in HASH.findall(text)} == {own}
    assert own[:19] in house.ok("approvals")
    (source(project) / "dist" / "built.js").write_text("built again")
    changed = house.run("register", "echo", "--no-input", *where)
    show, compared = (house.run(word, "echo", cwd=project) for word in ("show", "diff"))
    hashes = set(HASH.findall(changed.err + show.out + show.err + compared.err))
    assert own in hashes
    assert len(hashes) == 2, hashes


def test_settings_that_cannot_be_read_hide_the_limits_alone(house: Omac, project: Path) -> None:
    """Unreadable settings hide the limits alone; the error names the faulty setting."""
    file = Path(house.environment["XDG_CONFIG_HOME"]) / "omac" / "settings.toml"
    house.approve(project)
    house.ok("settings", "set", "limits.concurrent_calls", "8")
    content = file.read_text()
    file.write_text(content.replace("8", "eight"))
    try:
        done, as_json = house.run("show", "echo", cwd=project), house.run("show", "echo", "--json", cwd=project)
    finally:
        file.write_text(content)
        house.ok("settings", "unset", "limits.concurrent_calls")
    assert (done.status, as_json.status) == (0, 0), (done, as_json)
    assert "sidecar.py" in done.out
    for answer in (done, as_json):
        assert "the limits of its calls are unknown" in answer.err
        assert "settings.toml, line 2: limits.concurrent_calls takes" in answer.err
    assert json.loads(as_json.out)["limits"] is None


def test_a_proposal_comes_behind_the_data(house: Omac, project: Path) -> None:
    """A program that gets both outputs of a command gets the difference, or the files, before the proposed commands."""
    house.approve(project)
    (source(project) / "added").write_text("".join(f"line {number}\n" for number in range(900)))
    for word, last in (("diff", r"\+line 899"), ("show", ".* sidecar.py")):
        done = house.run(word, "echo", cwd=project, within=("/bin/sh", "-c", 'exec "$@" 2>&1', "sh"))
        assert re.search(rf"\n{last}\n(  try: omac .*\n)+\Z", done.out), done.out


def test_an_output_that_takes_nothing_ahead_of_a_proposal(house: Omac, project: Path) -> None:
    """A full disk, and a reader that left, decide the exit code also where data is lost before a message is printed."""
    house.approve(project)
    (source(project) / "added").write_text("x" * 6_000)  # more than the buffer of a file, less than that of a text
    full = house.run("diff", "echo", cwd=project, within=("/bin/sh", "-c", 'exec "$@" >/dev/full', "sh"))
    assert full.status == 1
    assert full.err.endswith("omac: no space is left for the output\n  try: df -h\n")
    assert house.run("diff", "echo", cwd=project, within=(sys.executable, "-c", UNREAD)).status == 141


def test_a_change_is_shown_as_a_unified_difference(house: Omac, project: Path) -> None:
    """Text is compared line by line, a binary file by name; new, removed and executable files are marked. An approved
    skill has no difference."""
    (source(project) / "data.bin").write_bytes(b"\0\1")
    house.approve(project)
    same = house.run("diff", "echo", cwd=project)
    assert (same.status, same.out, same.err) == (0, "", "echo: the files are what was approved\n")
    program = source(project) / "sidecar.py"
    lines = program.read_text().splitlines()
    program_at(program, "\n".join([*lines[:10], "changed = True", *lines[11:]]) + "\n")
    (source(project) / "data.bin").write_bytes(b"\0\1\2")
    (source(project) / "SKILL.md").unlink()
    (source(project) / "new.py").write_text("print('new')\n")
    (source(project) / "link").symlink_to("new.py")
    done = house.run("diff", "echo", cwd=project)
    assert done.status == 1
    assert "--- approved/sidecar.py\n+++ now/sidecar.py\n@@ -8,7 +8,7 @@\n" in done.out
    assert f"\n-{lines[10]}\n+changed = True\n" in done.out
    for text in (
        "sidecar.py: is now executable\n",
        "data.bin: a binary file changed, 2 B before, 3 B now\n",
        "SKILL.md: removed\n",
        "new.py: new, 13 B\n",
        "\n+print('new')\n",
        "link: new, a link to new.py\n",
    ):
        assert text in done.out, text
    assert "try: omac approve echo --hash sha256:" in done.err
    show = house.run("show", "echo", cwd=project)
    assert "CHANGED after it was approved since" in show.out
    assert "try: omac diff echo\n" in show.err
    house.approve(project)
    assert house.run("diff", "echo", cwd=project).status == 0


def test_a_copy_that_names_its_own_place_is_no_change(house: Omac, project: Path) -> None:
    """The copy of a script that names its folder names the copy's folder instead; this is no difference."""
    script = program_at(source(project) / "tool", f"#!{source(project)}/run\n")
    (source(project) / "absolute").symlink_to(script)
    (source(project) / "relative").symlink_to("tool")
    house.approve(project)
    assert house.run("diff", "echo", cwd=project).out == ""
    (source(project) / "relative").unlink()
    (source(project) / "relative").symlink_to("sidecar.py")
    assert house.run("diff", "echo", cwd=project).out == ("relative: a link to tool before, a link to sidecar.py now\n")


@pytest.mark.parametrize("relpath", ["sidecar.py", "dist/built.js", "node_modules/x/index.js"])
def test_what_is_offered_approves_what_was_shown(house: Omac, project: Path, relpath: str) -> None:
    """The proposed command approves nothing if an agent changes a file after it is printed, even in folders that the
    bundle hash leaves out."""
    file = source(project) / relpath
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("first\n")

    def offered(*words: str) -> list[str]:
        done = house.run(*words, "echo", cwd=project)
        return done.err.splitlines()[-1].removeprefix("  try: omac ").split()

    register = offered("show")
    before = file.read_text()
    file.write_text("changed by an agent\n")
    assert house.run(*register, "--no-secrets", "--no-fields", cwd=project).status != 0
    assert json.loads(house.ok("show", "echo", "--json", cwd=project))["state"] == "not approved"
    file.write_text(before)
    house.ok(*register, "--no-secrets", "--no-fields", cwd=project)
    file.write_text("second\n")
    approve = offered("diff")
    assert approve[0] == "approve"
    file.write_text("changed by an agent\n")
    assert house.run(*approve, cwd=project).status != 0
    file.write_text("second\n")
    house.ok(*approve, cwd=project)


@pytest.mark.parametrize("what", ["show", "diff"])
def test_what_an_agent_wrote_is_not_obeyed(house: Omac, project: Path, what: str) -> None:
    """Control characters in names, texts and descriptions are escaped. A difference in tabs alone is visible."""
    (source(project) / "tabs").write_text("a\tb\n")
    house.approve(project)
    (source(project) / "tabs").write_text("a       b\n")
    (source(project) / "evil\x1b[2J").write_text("\x1b]0;owned\x07\u202e\n")
    (source(project) / "SKILL.md").write_text('---\nname: echo\ndescription: "a\\e[31mb"\n---\n')
    done = house.run(what, "echo", *(["--contents"] if what == "show" else []), cwd=project)
    for char in "\x1b\x07\u202e":
        assert char not in done.out + done.err
    assert "evil\\x1b[2J" in done.out
    if what == "diff":
        assert "-a\\tb\n+a       b\n" in done.out


def test_what_is_large_is_bounded(house: Omac, project: Path) -> None:
    """A file of many lines or bytes is named, not compared for minutes. Two different large files of one size are told
    apart."""
    (source(project) / "lines").write_text("".join(f"{number % 7}\n" for number in range(50_000)))
    (source(project) / "large").write_bytes(b"x" * 300_000)
    house.approve(project)
    (source(project) / "lines").write_text("".join(f"{number % 5}\n" for number in range(50_000)))
    (source(project) / "large").write_bytes(b"x" * 299_999 + b"y")
    out = house.run("diff", "echo", cwd=project).out
    assert "large: changed, 293 KiB before, 293 KiB now\n" in out
    assert "too many to compare" in out
    assert len(out.splitlines()) < 20


def test_the_own_code_of_a_skill_comes_first(house: Omac, project: Path) -> None:
    """The files that a person has to read are listed, printed and compared before those of installed packages."""
    folder = source(project)
    for packages in (".venv/lib", "node_modules/some"):
        (folder / packages).mkdir(parents=True)
        (folder / packages / "0.js").write_text("of a package\n")
    listed = house.ok("show", "echo", cwd=project).splitlines()
    own = sorted(path.name for path in folder.iterdir() if path.is_file())
    start = next(number for number, line in enumerate(listed) if line.endswith(" files:"))
    assert [line.split()[-1] for line in listed[start + 1 :][: len(own)]] == own
    assert house.run("approve", "echo", cwd=project).status == 0
    (folder / own[-1]).write_text("changed\n")
    (folder / ".venv/lib/0.js").write_text("changed\n")
    compared = [line for line in house.run("diff", "echo", cwd=project).out.splitlines() if line.startswith("+++")]
    assert compared == [f"+++ now/{own[-1]}", "+++ now/.venv/lib/0.js"]


def test_contents_are_printed(house: Omac, project: Path) -> None:
    """Every text file is printed with line numbers; a binary file is only named."""
    (source(project) / "data.bin").write_bytes(b"\0")
    out = house.ok("show", "echo", "--contents", cwd=project)
    assert "+-- data.bin: a binary file\n" in out
    assert "+-- omac.yaml\n|    1  # What omac needs" in out


def test_a_command_is_shown_word_by_word(house: Omac, project: Path) -> None:
    """A word with blanks is quoted, so that it does not pass for several words."""
    meta = source(project) / "omac.yaml"
    meta.write_text(meta.read_text().replace('"sidecar.py"', '"sidecar.py --safe"', 1))
    assert "it runs as you: python3 'sidecar.py --safe'\n" in house.ok("show", "echo", cwd=project)


def test_a_skill_without_a_sidecar(house: Omac, project: Path) -> None:
    """A skill of mere guidance is shown too, and no approval is proposed."""
    guide = project / ".agents" / "skills" / "guide"
    guide.mkdir()
    (guide / "SKILL.md").write_text("---\nname: guide\ndescription: Words only.\n---\n")
    done = house.run("show", "guide", cwd=project)
    assert (done.status, done.err) == (0, "")
    assert "it has no sidecar" in done.out


def test_refusals(house: Omac, project: Path) -> None:
    """An unknown skill, one without an approval, and one whose approved copy is unreadable are refused."""
    assert house.run("show", "ehco", cwd=project).status == 4
    assert "try: omac show echo" in house.run("show", "ehco", cwd=project).err
    done = house.run("diff", "echo", cwd=project)
    assert done.status == 9
    assert "is not approved" in done.err
    house.approve(project)
    report = json.loads(house.ok("show", "echo", "--json", cwd=project))
    copy = house.state / "frozen" / report["digest"].partition(":")[2]
    copy.chmod(0o700)
    copy.rename(copy.with_name("elsewhere"))
    (source(project) / "new.py").write_text("")
    done = house.run("diff", "echo", cwd=project)
    assert (done.status, done.out) == (9, "")
    assert "cannot be read" in done.err
    copy.with_name("elsewhere").rename(copy)
    copy.chmod(0o500)


def offers(done: Done) -> list[list[str]]:
    """Return the words of the commands that are proposed."""
    lines = [line.removeprefix("  try: omac ") for line in done.err.splitlines() if line.startswith("  try: omac ")]
    return [shlex.split(line) for line in lines]


@pytest.mark.full
@pytest.mark.parametrize("hidden", [".claude/skills", "global"])
def test_what_is_offered_means_one_of_two_skills(omac: Omac, hidden: str) -> None:
    """A proposed command means the skill that was shown, also where another folder has one of that name."""
    project = omac.project("shop")
    home = Path(omac.environment["HOME"])
    other = home / ".agents/skills" if hidden == "global" else project / hidden
    shutil.copytree(project / ".agents/skills/echo", other / "echo")
    (other / "echo/SKILL.md").write_text("---\nname: echo\ndescription: Another one\n---\n")
    for words in offers(omac.run("trust", cwd=project)):
        (offer,) = offers(omac.run(*words, cwd=project))
        omac.ok(*offer, "--no-secrets", "--no-fields", cwd=project)
        (shown,) = [word for word in offer if word.startswith("sha256:")]
        assert shown in omac.ok("show", *words[1:], cwd=project)
    done = omac.run("trust", cwd=project)
    assert done.status == 0, done
