"""`omac hook pre-tool-use`: lets a tool call of an agent pass, or denies it.

The agents take exit status 2 for a denial, with the reason on stderr, and every other failure for consent. So whatever
goes wrong here denies. The worktree is the top level of $OMAC_WORKDIR, which the launcher sets, else of the variable
that tells an agent's hooks their project; an agent that sets neither runs its hooks where its session began
(`domain/harness/harness.py: Hook`). Never is it the payload's `cwd`, which drifts with the agent's `cd`.
"""

from __future__ import annotations

import os
import time

from omac.adapters.guard.write_target import GIT, checkouts, common_folder, resolve_write_target, top_level
from omac.domain.guard.guard import SCRATCH, Call, Denial, Unclear, call_of, readings, shown
from omac.domain.harness.names import INSTALLED, LAUNCH, LAUNCHED, hooked
from omac.domain.kernel import state_paths
from omac.domain.kernel.paths import below

TYPE_CHECKING = False  # importing typing would take longer than all the rest
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping

    Environment = Mapping[bytes, bytes]
else:
    try:
        import _signal as signal  # the module around it takes longer to load than all the rest
    except ImportError:
        import signal

ALLOWED, DENIED = 0, 2
PAYLOAD_BYTES_MAX = 32 * 1024 * 1024
DEADLINE_S = 20  # a hook that an agent's own deadline ends counts as consent; that is 60 s or more
RECORD_S = 5
READ_BYTES = 1 << 16
CLAIMED_PATHS = ("path", "root", "probable")
CLAIMED_PATH_MAX, CLAIMED_NAME_MAX = 1_024, 200  # characters, as services/guard/claims.py takes them
PLACES = (b"HOME", b"OMAC_STATE_DIR", b"XDG_CONFIG_HOME", b"XDG_STATE_HOME")
USAGE = """usage: omac hook pre-tool-use < PAYLOAD

Called by an agent before it runs a tool; `omac bridge install` arranges that.
Exit status 0 lets the call pass, 2 denies it.
"""


def main(argv: list[str]) -> int:
    """Answer for the payload on stdin: 0 lets the call pass, 2 denies it. Signals are ignored from then on."""
    if argv in (["-h"], ["--help"]):
        os.write(1, USAGE.encode())
        return ALLOWED
    try:
        if argv == [INSTALLED] and os.environ.get(LAUNCHED) == LAUNCH:
            return ALLOWED  # the guard that the launch gave its agent answers
        _arm(DEADLINE_S)
        if argv not in ([], [INSTALLED]):
            raise Unclear("the hook was called with arguments that it does not take")
        denial = decide(_payload(), os.environb)
        if denial is None:
            _disarm()
            return ALLOWED
    except BaseException as problem:
        denial = Denial(_failure(problem))
    return _deny(denial)


def decide(document: bytes, environment: Environment) -> Denial | None:
    """Return the denial of the call that a PreToolUse payload announces; None allows it. Raises Unclear, and any other
    error of a malformed payload: every one of them denies."""
    call = call_of(_decoded(document))
    if call is None:
        return None
    try:
        guarded = _Guarded(call, environment)
        for path in call.paths:
            for folder in guarded.folders():
                for reading in readings(path, folder, os.fsdecode(environment.get(b"HOME", b""))):
                    denial = guarded.judge(path, reading)
                    if denial is not None:
                        return denial
    except (Unclear, OSError) as problem:
        return Denial(_failure(problem), call=call)
    return None


class _Guarded:
    """The worktree that a call must stay in, and what else counts for it."""

    def __init__(self, call: Call, environment: Environment) -> None:
        self._call = call
        self._environment = environment
        self._root = top_level(_workdir(call, environment))
        if self._root in (b"/", os.path.realpath(environment.get(b"HOME", b"/"))):
            raise Unclear(f"the session began in {_text(self._root)}, which is no worktree to stay in")
        self._common = common_folder(self._root)

    def folders(self) -> tuple[str, ...]:
        """The folders that a relative path may start from."""
        cwd = self._call.cwd
        if cwd and not cwd.startswith("/"):
            raise Unclear("the hook's input has a cwd that is no absolute path")
        starts = (cwd,) if cwd else (os.getcwd(), _text(self._root))
        return tuple(os.path.join(start, base) for start in starts for base in self._call.bases)

    def judge(self, named: str, path: bytes) -> Denial | None:
        """Return the denial of a write to this absolute path; None allows it."""
        target = resolve_write_target(path)
        if below(target, resolve_write_target(_state(self._environment))):
            return self._denial("omac's own files must not be written", named, target)
        if below(target, self._root):
            return self._judge_inside(named, target)
        if self._is_declared(target):
            return None
        if any(below(target, resolve_write_target(folder)) for folder in SCRATCH) and not self._siblings(target):
            return None
        return self._denial(f"{shown(_text(target))} is outside the worktree", named, target)

    def _judge_inside(self, named: str, target: bytes) -> Denial | None:
        parts = target[len(self._root) :].lower().split(b"/")
        if GIT in parts or (self._common and self._common != self._root and below(target, self._common)):
            why = f"{shown(_text(target))} is git's own, and no file of the worktree"
        elif self._siblings(target):
            why = f"{shown(_text(target))} is in another worktree, below this one"
        else:
            return None
        return None if self._is_declared(target) else self._denial(why, named, target)

    def _siblings(self, target: bytes) -> list[bytes]:
        """Other checkouts of this repository that a path is in, innermost first; what cannot be told apart is one."""
        siblings = [
            checkout
            for checkout in checkouts(target, self._root)
            if self._common is not None and common_folder(checkout) in (None, self._common)
        ]
        if self._common is not None and not below(target, self._root) and below(target, self._common):
            siblings.append(self._common)
        return siblings

    def _is_declared(self, target: bytes) -> bool:
        return any(below(target, resolve_write_target(folder)) for folder in _declared(self._environment))

    def _denial(self, why: str, named: str, target: bytes) -> Denial:
        denial = Denial(why, call=self._call, named=named, path=_text(target), root=_text(self._root))
        try:
            siblings = self._siblings(target)
            containing_checkouts = siblings or list(checkouts(target, self._root))
        except (OSError, Unclear):
            return denial  # it is denied all the same
        if containing_checkouts and GIT not in target.split(b"/"):
            wrong = containing_checkouts[0]
            denial.checkout, denial.sibling = _text(wrong), bool(siblings)
            intended = self._root + target[len(wrong) :]
            if siblings or os.path.lexists(os.path.dirname(intended)):
                denial.probable = _text(intended)
        return denial


def _workdir(call: Call, environment: Environment) -> bytes:
    if workdir := environment.get(b"OMAC_WORKDIR"):
        return workdir
    variables = []
    for _, hook in hooked():  # whichever agent calls: the tools of two may have the same name
        if hook.project_variable:
            if workdir := environment.get(os.fsencode(hook.project_variable)):
                return workdir
            variables.append(hook.project_variable)
    if call.hook.begins_in_project:
        return os.getcwdb()
    raise Unclear(f"neither {' nor '.join(('OMAC_WORKDIR', *variables))} says which worktree this session is for")


def _state(environment: Environment) -> bytes:
    """omac's state directory."""
    stated = _own_paths(environment)
    return os.path.abspath(os.fsencode(state_paths.state(stated, _home(stated))))


def _own_paths(environment: Environment) -> dict[str, str]:
    """Return the variables of the environment that locate omac's own files."""
    return {os.fsdecode(name): os.fsdecode(environment[name]) for name in PLACES if name in environment}


def _home(named: Mapping[str, str]) -> str:
    if stated := state_paths.stated_home(named):
        return stated
    from omac.adapters.linux.home import home_of  # rarely needed

    return home_of(named)


def _declared(environment: Environment) -> list[bytes]:
    """The scratch folders that the person declared: by OMAC_GUARD_SCRATCH, else by the user's settings file."""
    folders = environment.get(b"OMAC_GUARD_SCRATCH")
    stated = folders.split(os.pathsep.encode()) if folders else _declared_in_file(environment)
    home = environment.get(b"HOME", b"")
    whole = [home + folder[1:] if folder == b"~" or folder.startswith(b"~/") else folder for folder in stated]
    return [folder for folder in whole if folder.startswith(b"/") and os.path.normpath(folder) not in (b"/", b"//")]


def _declared_in_file(environment: Environment) -> list[bytes]:
    stated = _own_paths(environment)
    path = os.fsencode(state_paths.configuration(stated, _home(stated)) + "/settings.toml")
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(PAYLOAD_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return []
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise Unclear(f"{shown(_text(path))} is writable by other users")
    import tomllib

    try:
        scratch = tomllib.loads(content.decode()).get("guard", {}).get("scratch", [])
    except (ValueError, AttributeError):
        raise Unclear(f"{shown(_text(path))} cannot be understood") from None
    folders = scratch.split(os.pathsep) if isinstance(scratch, str) else scratch
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise Unclear(f"guard.scratch in {shown(_text(path))} is not a list of folders")
    return [folder.encode() for folder in folders]


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _decoded(document: bytes) -> object:
    """The payload. A key that is said twice means different things to different readers. Raises Unclear and more."""
    try:
        text = document.decode().strip(" \t\r\n")
    except UnicodeDecodeError:
        raise Unclear("the hook's input is no UTF-8 text") from None
    if not text:
        raise Unclear("the hook's input is empty")
    try:
        decoded, end = _scanner()(text, 0)
    except (ValueError, StopIteration):
        raise Unclear("the hook's input is no JSON text") from None
    if end != len(text):
        raise Unclear("the hook's input goes on after its end")
    return decoded


def _scanner() -> Callable[[str, int], tuple[object, int]]:
    """Return the scanner that json.JSONDecoder uses: json itself takes longer to load than all the rest."""
    try:
        from _json import make_scanner
    except ImportError:
        from json import JSONDecoder

        return JSONDecoder(object_pairs_hook=_once).raw_decode
    return make_scanner(_ScannerContext)  # type: ignore[arg-type]  # it takes whatever has these attributes


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Unclear("the hook's input says a key twice")
    return members


class _ScannerContext:
    """The options of the scanner, with the attributes that json.JSONDecoder would give it."""

    strict = True
    object_hook = None
    object_pairs_hook = staticmethod(_once)
    parse_float = parse_constant = float
    parse_int = int


def _payload() -> bytes:
    """Return all of stdin: what is too much is read as well, so that the agent is not cut off, and refused. Raises
    Unclear."""
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            part = os.read(0, READ_BYTES)
        except BlockingIOError:
            import select

            select.select([0], [], [])
            continue
        if not part:
            break
        size += len(part)
        if size > PAYLOAD_BYTES_MAX:
            parts.clear()
        else:
            parts.append(part)
    if size > PAYLOAD_BYTES_MAX:
        raise Unclear(f"the hook's input is larger than {PAYLOAD_BYTES_MAX >> 20} MiB")
    return b"".join(parts)


def _deny(denial: Denial) -> int:
    """Record it where that can be done, say it where that can be done; it stands in any case."""
    try:
        note = _recorded(denial)
        text = denial.text() + note
    except BaseException:
        text = "omac: this call is denied: the write guard failed\n"
    try:
        _disarm()
        os.write(2, text.encode("utf-8", "backslashreplace"))
    except BaseException:
        return DENIED  # nobody listens
    return DENIED


def _recorded(denial: Denial) -> str:
    """Record a denial, and return a line for the agent if that failed; "" where it was recorded, or cannot be."""
    try:
        _arm(RECORD_S)
        if os.environb.get(b"OMAC_SANDBOX") == b"1":  # the state directory is out of reach in there
            return _claimed(denial)
        from omac.adapters.files.journal_in_use import journal_in_use, spool_of
        from omac.journal.spool import Spool

        state = os.fsdecode(_state(os.environb))
        Spool(spool_of(state, journal_in_use(state, os.environ))).append(
            "guard.denied", denial.fields(), stream="guard", version=None, at=time.time_ns(), run="", actor="agent",
            id=os.urandom(12).hex(),
        )  # fmt: skip
    except BaseException as problem:
        return f"  This denial could not be recorded: {_failure(problem)}\n"
    return ""


def _claimed(denial: Denial) -> str:
    """Report the denial by the bridge, where this sandbox has one."""
    if not os.environ.get("OMAC_CONTROL_TOKEN_FILE"):
        return ""
    from omac.adapters.harness.bridge import call

    claim = {}
    for name, value in denial.fields().items():  # what is longer would be refused, and so go unrecorded
        if value is not None:
            claim[name] = str(value)[: CLAIMED_PATH_MAX if name in CLAIMED_PATHS else CLAIMED_NAME_MAX]
    call("denied", claim | {"harness": os.environ.get("OMAC_HARNESS") or claim["harness"]}, os.environ)
    return ""


def _failure(problem: BaseException) -> str:
    if isinstance(problem, Unclear):
        return str(problem)
    from omac.domain.kernel.refusal import Refusal

    if isinstance(problem, Refusal):
        return problem.message
    if isinstance(problem, OSError):
        name = problem.filename
        where = shown(_text(name) if isinstance(name, bytes) else str(name)) + ": " if name is not None else ""
        return f"{where}{problem.strerror or 'the system failed'}"
    return f"the write guard failed ({type(problem).__name__})"


def _arm(seconds: int) -> None:
    """Have signals and the end of `seconds` raise, instead of ending the process with a status that is no denial."""

    def interrupted(number: int, _frame: object) -> None:
        raise Unclear(
            "the write guard took too long" if number == signal.SIGALRM else "the write guard was interrupted"
        )

    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupted)
    signal.alarm(seconds)
    for descriptor in (0, 1, 2):  # one that is closed would become the next file that is opened
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _disarm() -> None:
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
