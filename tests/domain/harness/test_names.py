"""domain/harness/names.py: a harness is one module and one line, and is loaded when it is needed."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from omac.domain.harness.harness import Harness
from omac.domain.harness.names import EXAMPLE, HOOKED_NAMES, NAMES, hooked, listed, load

ROOT = Path(__file__).parents[3]
LAYERS = ("domain", "journal", "projections", "services", "adapters", "tools")
HOME = ROOT / "domain" / "harness"
NAMED_ELSEWHERE = {  # why a module names a harness all the same
    "adapters/legacy/go_files.py": "the folder that the Go omac wrote its files to",
    "domain/git/grammar.py": "a file that an agent keeps in a git folder",
    "tools/main.py": "an example in the help",
}


def test_each_module_of_a_harness_has_its_line() -> None:
    """Each harness has a module and a line; the folder's other modules are shared by all harnesses."""
    shared = {"__init__", "bridge", "commands", "harness", "installation", "names", "table"}
    modules = {path.stem for path in HOME.glob("*.py")} - shared
    assert modules == set(NAMES)
    assert EXAMPLE in HOOKED_NAMES
    assert all(isinstance(load(name), Harness) for name in NAMES)
    assert [harness.name for harness, _ in hooked()] == list(HOOKED_NAMES)


def literals(path: Path) -> list[str]:
    """Return the texts in a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documents]
    texts = [node.value.decode(errors="replace") if isinstance(node.value, bytes) else node.value for node in constants]
    return [text for text in texts if isinstance(text, str)]


@pytest.mark.full
def test_no_other_module_names_a_harness() -> None:
    """Only its own module and the listed exceptions name a harness, be it in a text or by a variable or folder of its
    own."""
    pattern = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(NAMES)})(?![a-z0-9])", re.IGNORECASE)
    paths = {
        str(path.relative_to(ROOT))
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*.py")
        if path.parent != HOME and any(pattern.search(text) for text in literals(path))
    }
    assert paths == set(NAMED_ELSEWHERE)
    assert any(pattern.search(text) for text in literals(HOME / "claude.py"))


SAMPLE = """
from omac.domain.harness.harness import GuardTools, Harness, Hook

HARNESS = Harness(
    "sample",
    base="sample",
    serve=("sample",),
    install="get sample",
    folders=(".sample/",),
    autorun_files=(".sample-rules",),
    hook=Hook(".sample/hooks.json", "Put", GuardTools(files=("put",), paths=("spot",)), begins_in_project=True),
)
"""
KNOWN_EVERYWHERE = """
import sys
from omac.domain import harness

harness.__path__.insert(0, sys.argv[1])
from omac.adapters.sandbox.protected import NAMES
from omac.domain.guard.guard import call_of
from omac.domain.harness.table import harness_named
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.autorun_files import Obeyed
from omac.tools.compose.agent_launch import find_program
from omac.tools.compose.bridges import bridged_harnesses
from omac.tools.hotpath.sandbox_options import help_text

sample = harness_named("sample")
assert sample in bridged_harnesses()
assert ".sample" in NAMES
assert Obeyed("").by(".sample-rules") == "an agent"
assert "copilot, pi or sample:" in help_text()
call = call_of({"tool_name": "Put", "tool_input": {"spot": "a"}})
assert (call.harness, call.paths, call.hook) == ("sample", ("a",), sample.hook)
try:
    find_program(["sample"], {"PATH": "/nonexistent"})
except Refusal as refusal:
    assert "get sample" in refusal.fix
"""


def test_one_module_and_one_line_make_a_harness(tmp_path: Path) -> None:
    """A new harness is known to sandbox, guard, hooks, findings, launch and help without another change."""
    (tmp_path / "sample.py").write_text(SAMPLE)
    lines = (HOME / "names.py").read_text()
    more = lines.replace('    "pi": False,\n', '    "pi": False,\n    "sample": True,\n')
    assert more != lines
    (tmp_path / "names.py").write_text(more)
    argv = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{KNOWN_EVERYWHERE}", str(tmp_path)]
    subprocess.run(argv, check=True, timeout=60)


@pytest.mark.parametrize(
    ("tool", "loaded"), [("Write", {"claude"}), ("apply_patch", {"claude", "codex"}), ("Read", {"claude", "codex"})]
)
def test_the_guard_loads_no_more_than_it_needs(tool: str, loaded: set[str]) -> None:
    """The guard starts again for each call, so it loads harnesses only until one has the tool, and none without a
    hook."""
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from omac.domain.guard.guard import call_of\n"
        f"call_of({{'tool_name': {tool!r}, 'tool_input': {{'file_path': 'a', 'patch': '*** Add File: a'}}}})\n"
        "print(*(name.rpartition('.')[2] for name in sys.modules if name.startswith('omac.domain.harness.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert set(done.stdout.split()) & {*NAMES, "table"} == loaded


@pytest.mark.parametrize(
    ("names", "text"), [(("a",), "a"), (("a", "b"), "a or b"), (("a", "b", "c"), "a, b or c")]
)  # fmt: skip
def test_names_in_a_sentence(names: tuple[str, ...], text: str) -> None:
    """A list of one, two or more names reads as part of a sentence."""
    assert listed(names, "or") == text
