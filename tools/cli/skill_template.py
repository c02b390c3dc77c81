"""The files of a new skill: they pass `omac skill check`, run as they are, and show how to ask for values."""

from collections.abc import Sequence

from omac.domain.skills.meta import in_variables

GUIDE = """\
---
name: {name}
description: Answers a greeting. Fetch "${variable}/hello" with curl. Say here when an agent should use the skill.
---

# {name}

The address is in `${variable}`; put the path behind it:

```sh
curl -sS "${variable}/hello"
```

If the variable is empty, the skill is not running: report that to the user.
"""
META = """\
# The whole form, with an explanation of each line: omac skill schema --example
name: {name}
description: Answers a greeting

sidecar:
  # Started in this folder, outside the sandbox; it must listen on 127.0.0.1 at the port in SIDECAR_PORT.
  command: ["python3", "sidecar.py"]

  # The first part of the path, and the middle of the variable that agents use.
  mount: {mount}

  # omac sends GET to this path until the answer is 2xx.
  health:
    path: /status

{secrets}
  # A setting, whose value is no secret.
  # config:
  #   - name: {prefix}_GREETING
  #     description: The word that it answers with
  #     default: "hello"
"""
PLAIN_VALUES = """\
  # A credential, which only the sidecar gets. Remove the # signs, and omac asks for it.
  # secrets:
  #   - name: {prefix}_TOKEN
  #     description: Where to get it
"""
VALUES = """\
  # Credentials, which only the sidecar gets. omac asks for them.
  secrets:
"""
VALUE = """\
    - name: {secret}
      description: Where to get it
"""
SIDECAR = '''\
"""The sidecar of {name}: a small HTTP server, which omac starts outside the sandbox."""

import http.server
import os


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/status":
            self.answer(200, "ok\\n")
        elif self.path == "/hello":
            greeting = os.environ.get("{prefix}_GREETING", "hello")
{use}
            self.answer(200, greeting + "\\n")
        else:
            self.answer(404, "no such path\\n")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())


address = ("127.0.0.1", int(os.environ["SIDECAR_PORT"]))
http.server.ThreadingHTTPServer(address, Handler).serve_forever()
'''


PLAIN_USE = """\
            # os.environ["{prefix}_TOKEN"] holds the secret, once omac.yaml declares it."""
USE = """\
            greeting += ", with a secret of " + str(len(os.environ["{secret}"])) + " characters\""""


def files_of(name: str, mount: str, secrets: Sequence[str] = ()) -> dict[str, str]:
    """Return the content of each file of a new skill by its name; it asks for the values of `secrets`."""
    part = in_variables(mount)
    words = {"name": name, "mount": mount, "variable": f"OMAC_{part}_BASE"}
    words["prefix"] = f"X_{part}" if part[0].isdigit() else part
    if secrets:
        words["secrets"] = VALUES + "".join(VALUE.format(secret=secret) for secret in secrets)
        words["use"] = USE.format(secret=secrets[0])
    else:
        words |= {"secrets": PLAIN_VALUES.format(**words), "use": PLAIN_USE.format(**words)}
    templates = {"SKILL.md": GUIDE, "omac.yaml": META, "sidecar.py": SIDECAR}
    return {file: template.format(**words) for file, template in templates.items()}
