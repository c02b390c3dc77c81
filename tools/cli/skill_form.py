"""omac skill schema: the files that come with omac and say what an omac.yaml may hold."""

import os

from omac.domain.kernel.refusal import Refusal
from omac.domain.skills import schema
from omac.tools.terminal.invocation import print_data

SCHEMA = "omac.schema.json"
EXAMPLE = os.path.join("examples", "skills", "echo", "omac.yaml")


def run(example: bool, as_path: bool) -> int:
    """Print a file, or where it is. Raises Refusal (prerequisite-missing)."""
    path = _example() if example else os.path.join(os.path.dirname(os.path.realpath(schema.__file__)), SCHEMA)
    if as_path:
        print_data(path)
        return 0
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        message = f"a file of this installation is missing: {path} ({error.strerror}); install omac from its checkout"
        raise Refusal("prerequisite-missing", message, fix=["uv tool install --reinstall ."]) from None
    print_data(text.rstrip("\n"))
    return 0


def _example() -> str:
    """Return the example's path: beside the packages, in a checkout as in an installation."""
    packages = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(schema.__file__))))
    return os.path.join(packages, EXAMPLE)
