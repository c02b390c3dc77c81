"""Patches in shell commands: the folders where they apply, as far as these can be determined, and paths that a shell
expands."""

import pytest

from omac.domain.guard.guard import Unclear, call_of

PATCH = "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"
INNER = PATCH.format("a")
QUOTED = f"apply_patch <<'EOF'\n{INNER}\nEOF\n"


def bases(command: object) -> tuple[str, ...]:
    call = call_of({"tool_name": "shell", "tool_input": {"command": command}})
    assert call is not None
    return call.bases


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", (".",)),
        ("set -e; ", (".",)),
        ("set -euo pipefail\n", (".",)),
        ("git -C x status 2>&1 | head -5; ", (".",)),
        ("mkdir -p 'a b' && ", (".",)),
        ("cat notes.md; echo \"don't\" 'it' && ", (".",)),
        ("cd a && ", ("./a",)),
        ("cd\ta && ", ("./a",)),
        ("\n  cd   a/b/  &&\t", ("./a/b/",)),
        ("cd '/a b' && ", ("/a b",)),
        ('echo; cd "a" && ', ("./a",)),
        ("cd a && cd ../b && ", ("./a/../b",)),
        ("cd a && cargo fmt | tail -1 && ", ("./a",)),
        ("cd a; ", (".", "./a")),
        ("cd a\n", (".", "./a")),
        ("cd a; cd ../b\n", (".", "./a", "./../b", "./a/../b")),
        ("cd a && true; ", (".", "./a")),
        ("false && cd a; ", (".", "./a")),
    ],
)
def test_where_a_patch_applies(before: str, expected: tuple[str, ...]) -> None:
    """A patch applies in the folder of a `cd` that must have succeeded. After one that may have failed, it applies
    there or in the folder before."""
    assert bases(before + QUOTED) == expected
    assert bases(["bash", "-lc", before + QUOTED]) == expected


@pytest.mark.parametrize(
    "before",
    [
        "pushd ../outside; ",
        "pushd ../outside >/dev/null && ",
        "popd; ",
        "(cd ../outside; ",
        "( cd ../outside && ",
        "{ cd ../outside; ",
        "if cd ../outside; then ",
        "! cd ../outside || ",
        "true | cd a && ",
        "true || cd a && ",
        "cd a | ",
        "cd a || ",
        "cd a & ",
        "for d in a; do cd $d; ",
        "f() { cd ../outside; }; f; ",
        "x() {\ncd ../outside\n}\nx; cd -- a && ",
        "builtin cd ../outside && ",
        "command cd ../outside && ",
        "CDPATH=.. cd outside && ",
        "eval \"$move\"; ",
        "eval 'c''d ../outside'; ",
        "$move ../outside; ",
        "`echo cd` ../outside; ",
        "c\\d ../outside; ",
        "'cd' ../outside; ",
        "c\\\nd ../outside; ",
        "cd && ",
        "cd - && ",
        "cd -P ../outside && ",
        "cd -- ../outside && ",
        "cd ~ && ",
        "cd ~root && ",
        "cd $HOME && ",
        "cd \"$HOME\" && ",
        "cd $(pwd)/.. && ",
        "cd a b && ",
        "cd 'a'/../.. && ",
        "cd {a,b} && ",
        "cd ../out*de && ",
        "cd a # && ",
        "echo \"a && cd src && b\" && ",
        "# cd src && \\\n",
        "bash -c 'cd ../outside; ",
        "env -C ../outside ",
        "env --chdir=../outside ",
        "sudo -D ../outside ",
        "trap 'cd ..' DEBUG; ",
        "alias x='cd ..'; ",
    ],
)  # fmt: skip
def test_the_base_folder_of_a_patch_is_unclear(before: str) -> None:
    """A patch after any other command that could change the folder may not have relative paths; absolute ones need no
    folder."""
    with pytest.raises(Unclear, match="use absolute paths"):
        bases(before + QUOTED)
    assert bases(before + QUOTED.replace(": a\n", ": /a\n")) == ("",)


@pytest.mark.parametrize(
    ("between", "expected"),
    [("", (".",)), ("cd a && ", (".", "./a")), ("cd ..; ", (".", "./..")), ("pushd ..; ", None)],
)
def test_a_second_patch(between: str, expected: tuple[str, ...] | None) -> None:
    """A folder that changes between two patches counts for both."""
    command = QUOTED + between + QUOTED
    if expected is None:
        with pytest.raises(Unclear):
            bases(command)
    else:
        assert bases(command) == expected


def test_a_patch_without_its_end() -> None:
    """A patch without its end is refused, because the commands between it and the next patch cannot be determined."""
    with pytest.raises(Unclear):
        bases(QUOTED.replace("*** End Patch\n", "") + "cd ..\n" + QUOTED)


@pytest.mark.parametrize(
    "command",
    [
        "apply_patch <<EOF\n{}\nEOF",
        "apply_patch <<-EOF\n{}\nEOF",
        'apply_patch "{}"',
        "apply_patch $'{}'",
        "apply_patch <<A <<'B'\n{}\nB",
        "bash -c \"apply_patch <<'EOF'\n{}\nEOF\"",
        "apply_patch <<'EOF'\n{0}\nEOF\napply_patch <<EOF\n{0}\nEOF",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["$HOME/x", "`pwd`/x", "a\\x"])
def test_a_path_that_the_shell_expands(command: str, path: str) -> None:
    """A path that the shell expands is refused, since it leads elsewhere than its text."""
    with pytest.raises(Unclear, match="expand"):
        bases(command.format(PATCH.format(path)))
    assert bases(command.format(PATCH.format("plain"))) == (".",)


@pytest.mark.parametrize(
    "command",
    [
        "apply_patch <<'EOF'\n{}\nEOF",
        'apply_patch << "EOF"\n{}\nEOF',
        "apply_patch <<\\EOF\n{}\nEOF",
        "cat <<-'EOF' | apply_patch\n{}\nEOF",
        "apply_patch '{}'",
        "printf '{}' | apply_patch",
        ["apply_patch", "{}"],
        ["bash", "-lc", "apply_patch <<'EOF'\n{}\nEOF"],
    ],
)
def test_a_path_with_a_dollar(command: str | list[str]) -> None:
    """A file named like `routes/$id.tsx` passes where quotes keep the shell from expanding its name."""
    patch = PATCH.format("routes/$id.tsx")
    whole = command.format(patch) if isinstance(command, str) else [word.format(patch) for word in command]
    assert bases(whole) == (".",)
