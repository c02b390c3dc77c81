"""The version of omac that is installed."""

import omac
from omac.tools.terminal.invocation import print_data

VERSION = omac.__version__


def show(as_json: bool) -> int:
    """Print it."""
    print_data(f'{{"version":"{VERSION}"}}' if as_json else f"omac {VERSION}")
    return 0
