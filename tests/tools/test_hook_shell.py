"""The base folders of a patch in a shell command, compared with bash, which runs the command."""

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from tiers import examples

from omac.domain.guard.shell import patch_bases

EXAMPLES = int(os.environ.get("OMAC_SOAK_EXAMPLES", examples(3000)))
SEED = int(os.environ.get("OMAC_SOAK_SEED", time.time_ns()))  # a failure says it, and is the same again with it

PLAIN = """cd a|cd ..|cd ../b|cd\ta/c|cd 'a'|cd "b"|cd missing|true|false|echo a|cat <<E|E""".split("|")  # noqa: SIM905
ODD = r"""
cd -|cd|cd $B|cd ~|pushd b|popd|eval 'cd a'|CDPATH=.. cd b|X=cd|$X b|c''d a|\cd b|command cd b|echo 'x|x'|"|'|\|# cd a|
( cd b|cd a )|{ cd b|cd a; }|if cd b|then cd a|fi|! cd a|f() { cd b; }|f|cd a >x|env -C a
""".strip().split("|")
SEPARATORS = (";", "&&", "&&", "||", "|", "\n", "&", "")
ODD_SHARE = 0.1
PATCH = "*** Begin Patch\n*** Add File: x\n+x\n*** End Patch"
TOOL = 'apply_patch() { pwd >> "$TOLD"; cat > /dev/null; }\n'


@pytest.mark.full
def test_bash_applies_it_nowhere_else(tmp_path: Path) -> None:
    """The folders that omac derives for a patch include the one in which bash calls the tool, if it gets there."""
    chance = random.Random(SEED)
    top, log = tmp_path / "top", tmp_path / "told"
    for name in ("a/c", "b", "a/b"):
        (top / name).mkdir(parents=True, exist_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(top / "b"), "B": "b", "TOLD": str(log)}
    applied = 0
    for _ in range(EXAMPLES):
        before = ""
        for _ in range(chance.randint(0, 5)):
            command = chance.choice(ODD if chance.random() < ODD_SHARE else PLAIN)
            before += f"{command} {chance.choice(SEPARATORS)} "
        whole = f"{before}apply_patch <<'EOF'\n{PATCH}\nEOF\n"
        bases = patch_bases(whole, str(top), ("apply_patch",))
        if not bases:
            continue
        subprocess.run(
            ["bash", "-c", TOOL + whole], cwd=top, env=environment, capture_output=True, timeout=20, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if log.exists():
            applied += 1
            folders = {os.path.normpath(line) for line in log.read_text().splitlines()}
            assert folders <= {os.path.normpath(base) for base in bases}, (SEED, whole)
            log.unlink()
    assert applied > EXAMPLES / 10, "bash was asked"
