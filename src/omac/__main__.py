"""`python -m omac`: becomes the same interpreter in isolated mode, before anything of omac is imported."""

import os
import sys

if not sys.flags.isolated:
    os.execv(sys.executable, [sys.executable, "-I", "-m", "omac", *sys.argv[1:]])  # noqa: S606  # no shell is wanted

from omac.tools.entry import main

main()
