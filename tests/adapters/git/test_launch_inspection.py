"""The findings of a launch's end: their order, and that each is there once."""

from pathlib import Path

from omac.adapters.git.inspection import Baseline, Budget, Finding, Inspection
from omac.adapters.git.launch_inspection import GROUP_MIN, LINES_MAX, lines
from omac.adapters.git.launch_record import Record


def test_what_was_set_aside_comes_first(tmp_path: Path) -> None:
    """However many findings are only reported, those that were set aside are among the lines."""
    reported = [Finding(f"/p/{number}", "is a new submodule") for number in range(LINES_MAX + 1)]
    moved = Finding("/p/.git/hooks/x", "is a hook", "/aside/x")
    shown = lines([*reported, moved], "launch", str(tmp_path))
    assert shown[0] == str(moved)
    assert shown[1:-1] == [str(finding) for finding in reported[: LINES_MAX - 1]]
    assert shown[-1].startswith(f"all {LINES_MAX + 2} findings: less ")


def test_many_new_files_of_a_folder_are_one_line(tmp_path: Path) -> None:
    """Their line leads to all of them, links too; few files, and those of another program, have a line each."""
    hooks = [Finding(f"/p/.husky/_/{number}", "is new", group="git") for number in range(GROUP_MIN)]
    few = [Finding(f"/p/.vscode/{number}", "is new", group="an editor") for number in range(GROUP_MIN - 1)]
    other, changed = Finding("/p/.husky/_/x", "is new", group="a build"), Finding("/p/.husky/_/y", "is changed")
    shown = lines([*hooks[1:], other, *few, changed, hooks[0]], "launch", str(tmp_path))
    command = "find /p/.husky/_ -maxdepth 1 -ls -type f -exec grep -aH '' {} + | cat -v"
    assert shown[0] == f"/p/.husky/_: {GROUP_MIN} files are new or changed, and git obeys them: {command}"
    assert shown[1:-1] == [str(finding) for finding in (other, *few, changed)]
    path = shown[-1].partition(": less ")[2]
    assert Path(path).read_text().count("is new") == len(hooks) + 1 + len(few)


def test_a_build_folder_is_one_line(tmp_path: Path) -> None:
    """Files that CMake writes all over its build folder have one line, and one each in the file with all findings."""
    for folder in (".git", "out/CMakeFiles/x.dir", "src"):
        (tmp_path / "shop" / folder).mkdir(parents=True)
    for folder in ("", "out"):
        (tmp_path / "shop" / folder / "CMakeCache.txt").touch()
    names = "out/Makefile", "out/CMakeFiles/x.dir/cmake_clean.cmake", "Makefile", "src/x.cmake", "out/package.json"
    findings = [Finding(f"{tmp_path}/shop/{name}", "is new", group="a build") for name in names[:-1]]
    findings.append(Finding(f"{tmp_path}/shop/{names[-1]}", "is new", group="a package manager"))
    shown = lines(findings, "launch", str(tmp_path))
    assert shown[0] == f"{tmp_path}/shop/out: 2 files of this build folder are new or changed, and a build obeys them"
    assert shown[1:-1] == [str(finding) for finding in findings[2:]]
    assert shown[-1].startswith("all 5 findings: less ")


def test_no_command_is_cut_off(tmp_path: Path) -> None:
    """The line of a folder whose path leaves no room for the command has none."""
    folder = f"/p/{'x' * 140}/.husky/_"
    hooks = [Finding(f"{folder}/{number}", "is new", group="git") for number in range(GROUP_MIN)]
    assert (
        lines(hooks, "launch", str(tmp_path))[0]
        == f"{folder}: {GROUP_MIN} files are new or changed, and git obeys them"
    )


def test_the_file_with_all_findings_has_a_line_for_each(tmp_path: Path) -> None:
    """No name that a program chose begins a line of the file, moves the cursor or turns what is read."""
    names = ["a\nomac: nothing else", "\x1b[8mhidden", "\u202egpj.x", "\udcff", "\x9b0m"]
    lines([Finding(f"/p/{name}", "is new") for name in names * LINES_MAX], "launch", str(tmp_path))
    written = (tmp_path / "set-aside/launch/findings").read_text()
    assert all(line.startswith("'/p/") and line.isprintable() for line in written.splitlines())
    assert written.count("\n") == len(names) * LINES_MAX


def test_what_is_judged_again_is_reported_once() -> None:
    """A folder that is judged once more adds no finding that is there, no place, and takes no room twice."""
    baseline = Baseline(0)
    inspection = Inspection(Record("launch", 0), baseline, Budget(1.0))
    inspection.report("/p/a", "is new")
    begun, room = inspection.position(), baseline.room
    for _ in range(2):
        baseline.keep("/p/.git/config", b"x")
        inspection.report("/p/.git/b", "is new")
        inspection.go_back(begun)
    assert [finding.path for finding in inspection.findings] == ["/p/a", "/p/.git/b"]
    assert (baseline.room, inspection.places) == (room, [])
