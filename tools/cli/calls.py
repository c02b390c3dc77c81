"""omac url, omac env and omac call: trying a skill from the host, as an agent of a run would reach it.

The person gets a token of the session "cli", which no agent gets, so the audit tells these calls from an agent's.
"""

import contextlib
import http.client
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from omac.domain.access.control import PERSON
from omac.domain.kernel.refusal import REASONS, Refusal, quoted
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.meta import in_variables
from omac.tools.cli.control import ask_run, explaining_directory, online_in
from omac.tools.compose.scope_options import Where, directory_of
from omac.tools.compose.state import look_at, server_socket
from omac.tools.terminal.invocation import current, expanded, print_data, print_json
from omac.tools.terminal.prompts import read_stdin
from omac.tools.terminal.render import report
from omac.tools.terminal.skill_problems import problem_of

TIMEOUT_S = 630.0
CHUNK_BYTES = 64 * 1024
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token (RFC 9110 section 5.6.2)
FRAMING = ("content-length", "transfer-encoding")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class CallRequest(NamedTuple):
    """The command line, as typed."""

    skill: str
    words: tuple[str, ...] = ()
    where: Where = Where()
    data: str | None = None
    headers: tuple[str, ...] = ()
    json: bool = False


def url(request: CallRequest, environment: Mapping[str, str]) -> int:
    """Print where a skill is. Raises Refusal."""
    skill = _ready(_manifest(request, environment), request)
    if request.json:
        print_json({"skill": skill["name"], "base": skill["base"], "socket_base": skill.get("socket_base")})
    else:
        print_data(skill["base"])
    return 0


def env(request: CallRequest, environment: Mapping[str, str]) -> int:
    """Print the variables by which a shell reaches a skill, for eval. Raises Refusal."""
    manifest = _manifest(request, environment)
    skill = _ready(manifest, request)
    name = f"OMAC_{in_variables(skill['mount'])}_BASE"
    variables = {name: skill["base"], "OMAC_WORKDIR": manifest["dir"], "OMAC_SKILLS": manifest["env"]["OMAC_SKILLS"]}
    if request.json:
        print_json(variables)
    else:
        for variable, value in variables.items():
            print_data(f"export {variable}={shlex.quote(value)}")
    return 0


def call(request: CallRequest, environment: Mapping[str, str]) -> int:
    """Send one request to a skill, and print the body of the answer; 1 for an error. Raises Refusal."""
    method, path = _target(request)
    body = _body(request.data)
    fields = [_header(text) for text in request.headers]
    if body is not None and all(name.lower() != "content-type" for name, _ in fields):
        fields.append(("Content-Type", "application/json" if body[:1] in (b"{", b"[") else "text/plain"))
    base = urlsplit(_ready(_manifest(request, environment), request)["base"])
    connection = http.client.HTTPConnection(base.hostname or "127.0.0.1", base.port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        with _naming_log(request, f"{request.skill} did not answer"):
            answer = _ask(connection, method, base.path + path, fields, body)
        _print(_chunks(answer, request))
    reason = answer.headers.get("X-Omac-Reason", "")
    if answer.status >= 400:
        why = f" ({reason})" if reason else ""
        report(f"omac: {request.skill} answered {answer.status} {answer.reason}{why}")
        return REASONS[reason].exit_code if reason in REASONS else 1
    return 0


def _ask(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    fields: Sequence[tuple[str, str]],
    body: bytes | None,
) -> http.client.HTTPResponse:
    """Send a request with these fields, a repeated one as often as it was named; return the head of the answer."""
    names = {name.lower() for name, _ in fields}
    connection.putrequest(method, target, skip_host="host" in names, skip_accept_encoding="accept-encoding" in names)
    if body is not None or method in ("POST", "PUT", "PATCH"):
        connection.putheader("Content-Length", str(len(body or b"")))
    for name, value in fields:
        connection.putheader(name, value.encode())
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent: the answer says why
        connection.endheaders(body)
    return connection.getresponse()


@contextlib.contextmanager
def _naming_log(request: CallRequest, happened: str) -> Iterator[None]:
    """Turn errors of the connection into a refusal that names the record and the log of the skill: omac may have ended
    the call as well as the skill. Raises Refusal."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        name = quoted(request.skill)
        fix = [f"omac audit --skill {name} -n 3", f"omac logs {name} {request.where.flags}".strip()]
        match error:
            case OSError(strerror=str(why)):
                pass
            case http.client.IncompleteRead(expected=int(number)):
                why = f"bytes that are missing: {number}"
            case http.client.IncompleteRead():
                why = "its end is missing"
            case _:
                why = str(error)
        raise Refusal("upstream-error", f"{happened}: {why}", fix=fix) from None


def _chunks(answer: http.client.HTTPResponse, request: CallRequest) -> Iterator[bytes]:
    """Yield a body as it comes, all of it. Raises Refusal."""
    chunk = b"-"
    while chunk:
        with _naming_log(request, f"the answer of {request.skill} broke off"):
            chunk = answer.read1(CHUNK_BYTES)
            if not chunk and answer.length:  # read1 takes any end of the connection for the end of the body
                raise http.client.IncompleteRead(b"", answer.length)
        yield chunk


def _print(chunks: Iterable[bytes]) -> None:
    """Print a body as it comes: as it is to a file or a program, escaped to a terminal."""
    stdout = current().stdout
    stdout.flush()
    binary = None if stdout.isatty() else getattr(stdout, "buffer", None)
    for chunk in chunks:
        if binary is not None:
            binary.write(chunk)
            binary.flush()
        else:
            lines = chunk.decode(errors="backslashreplace").split("\n")
            stdout.write("\n".join(printable(line.expandtabs(8).removesuffix("\r")) for line in lines))
            stdout.flush()


def _target(request: CallRequest) -> tuple[str, str]:
    """Method and path, from one word or two. Raises Refusal (misuse)."""
    match request.words:
        case (path,) if path.upper() not in METHODS:
            method = "GET" if request.data is None else "POST"
        case (word, path) if word.upper() in METHODS:
            method = word.upper()
        case _:
            command = f"omac call {shlex.quote(request.skill)}"
            fix = [f"{command} /status", f"{command} POST /messages -d hi"]
            raise Refusal("misuse", f"write a path, or one of {', '.join(METHODS)} and a path", fix=fix)
    if not path.isascii() or not path.isprintable() or " " in path:
        raise Refusal("misuse", f"{path!r} is no path of a URL: write other characters as %20 and the like")
    return method, path if path.startswith("/") else f"/{path}"


def _body(data: str | None) -> bytes | None:
    """The bytes to send: the text itself, - or curl's @- for the standard input, @FILE for a file. Raises Refusal."""
    if data is None:
        return None
    if data in ("-", "@-"):
        return read_stdin()
    if not data.startswith("@"):
        return data.encode(errors="surrogateescape")
    try:
        with open(path := expanded(data[1:]), "rb") as file:
            return file.read()
    except OSError as error:
        raise Refusal("misuse", f"{data[1:]} cannot be read: {error.strerror}", fix=[look_at(path)]) from None


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    if not HEADER_NAME.fullmatch(name) or not text.isprintable() or ":" not in text:
        raise Refusal("misuse", f"-H takes NAME: VALUE, not {text!r}")
    if name.lower() in FRAMING:
        raise Refusal("misuse", f"omac call writes {name} itself, from the data that it sends: leave it out")
    return name, value.strip()


def _manifest(request: CallRequest, environment: Mapping[str, str]) -> dict[str, Any]:
    """The manifest of the project, from the run that has it online, else from the server, which brings it online: that
    is reported. Raises Refusal."""
    directory = directory_of(request.where)
    online = online_in(directory, environment)
    for run in filter(None, [*online, server_socket(environment)]):
        with explaining_directory(directory, environment):
            answer = ask_run(run, "POST", "/__omac__/activate", {"dir": directory, "session": PERSON})
        if answer is not None:
            if run not in online:
                report(f"omac: brought {directory} online; omac deactivate {quoted(directory)} takes it offline again")
            manifest: dict[str, Any] = msgspec.json.decode(answer)
            return manifest
    where = f"--workdir {quoted(directory)}"
    fix = [f"omac start {where} -- bash", f"omac serve --no-inner {where}"]
    raise Refusal("not-found", f"no omac start or omac serve runs for {directory}", fix=fix)


def _ready(manifest: Mapping[str, Any], request: CallRequest) -> dict[str, Any]:
    """The skill that is meant, by its name or its mount. Raises Refusal."""
    skills: list[dict[str, Any]] = manifest["skills"]
    matches = [skill for skill in skills if skill["name"] == request.skill] or [
        skill for skill in skills if skill["mount"] == request.skill
    ]
    if not matches:
        from difflib import get_close_matches

        names = [skill["name"] for skill in skills]
        near = get_close_matches(request.skill, names, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names) or 'none'}"
        message = f"no skill {request.skill!r} is online in {manifest['dir']}; {hint}"
        raise Refusal("skill-not-found", message, fix=[f"omac list {request.where.flags}".strip()])
    (skill,) = matches[:1]
    if skill["state"] != "ready":
        reason = "pending-credentials" if skill["state"] == "pending_credentials" else "skill-broken"
        state, detail, fix = problem_of(skill, manifest["dir"], current().stderr)
        raise Refusal(reason, f"{skill['name']} is {state.replace('_', ' ')}: {detail}", fix=fix)  # type: ignore[arg-type]
    return skill
