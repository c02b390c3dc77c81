"""omac as a program that omac starts, and how it starts any. Loaded by what starts within milliseconds."""

import os
import sys
from collections.abc import Mapping, Sequence
from errno import EAGAIN
from importlib.machinery import PathFinder
from subprocess import Popen

import omac
from omac.domain.kernel.refusal import COUNT_PROCESSES, Refusal, quoted

PACKAGE = os.path.dirname(omac.__file__)


def _libraries() -> str:
    """The folder of the libraries, found without loading one."""
    spec = PathFinder.find_spec("msgspec")
    assert spec is not None, "omac is installed with its libraries"
    return os.path.dirname(os.path.dirname(str(spec.origin)))


# Isolated: neither PYTHONPATH nor the current directory, which may be anybody's, brings modules; this very omac runs,
# with its libraries, which are elsewhere when it runs from a checkout.
OMAC = (
    sys.executable, "-I", "-S", "-c",
    "import sys; sys.path += sys.argv[1:3]; del sys.argv[1:3]; from omac.tools.entry import main; main()",
    os.path.dirname(PACKAGE), _libraries(),
)  # fmt: skip


def begun(
    argv: Sequence[str], environment: Mapping[str, str], folder: str | None = None, handed_on: Sequence[int] = ()
) -> Popen[bytes]:
    """Start a program from Trio's own thread: one that ends would take along what asked to die with its parent.

    `folder` None: it begins where omac is; `handed_on` are descriptors that it gets. Raises Refusal
    (command-not-executable, sandbox-failed) when it cannot be run.
    """
    try:
        return Popen(argv, env=dict(environment), cwd=folder, pass_fds=handed_on)
    except OSError as problem:
        message = f"{argv[0]} cannot be run: {problem.strerror}"
        if problem.errno == EAGAIN:  # fork(2): a limit of processes
            raise Refusal("sandbox-failed", message, fix=[COUNT_PROCESSES]) from problem
        raise Refusal("command-not-executable", message, fix=[f"file {quoted(argv[0])}"]) from problem
