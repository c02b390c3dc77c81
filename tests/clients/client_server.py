"""Requests to a client's own server in a namespace that tests are not in, by the real curl."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from real_omac import CURL


class Server:
    """A server at `base`; `within` is the command that runs another command where the server can be reached."""

    def __init__(self, base: str, within: Sequence[str]) -> None:
        self.base = base
        self.within = within

    def answers(self, path: str) -> bool:
        """Return whether the server answers a GET soon; a request that comes while it starts may never be answered."""
        line = [*self.within, *CURL, "--fail", "--max-time", "2", "-o", "/dev/null", self.base + path]
        return subprocess.run(line, capture_output=True).returncode == 0

    def call(self, method: str, path: str, document: object = None) -> Any:
        """Return the decoded answer of a request that succeeds."""
        sends = () if document is None else ("--json", json.dumps(document))
        line = [*self.within, *CURL, "--fail-with-body", "-X", method, *sends, self.base + path]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, (path, done.stdout, done.stderr)
        return json.loads(done.stdout)
