"""adapters/control/late.py: the application can be imported though the system has no descriptor for a while."""

import subprocess
import sys

PROGRAM = """
import errno, sys
from omac.adapters.control.late import importing

opened, tries = 0, 0

def refuse(event, arguments):
    global opened
    if event == "open" and str(arguments[0]).endswith((".py", ".pyc")):
        opened += 1
        if opened > 10 * tries:
            raise OSError(errno.EMFILE, "Too many open files")

sys.addaudithook(refuse)
while "omac.adapters.control.app" not in sys.modules:
    opened, tries = 0, tries + 1
    try:
        with importing():
            import omac.adapters.control.app
    except OSError:
        continue
print(tries)
"""


def test_an_import_that_failed_is_repeated() -> None:
    """The application is imported in the end, wherever the attempts before broke off."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3
