"""The environment of a confined program: built from nothing, out of names that are harmless or were asked for.

Rules

1. A variable is there because it is listed here, because the harness needs it, because omac adds it, or because a
   person named it. No pattern brings one along but `LC_*`.
2. A person may name any variable and give it any value, with two exceptions: what the loader obeys in every program,
   bubblewrap included, which runs outside; and what omac keeps for itself.
3. A name alone passes the host's value. It is refused where that value makes other programs run code: such a value has
   to be written out.
4. Proxies pass as they are where the network is the host's: without them there is no way out.
5. An index passes that git names to its hooks (a partial commit has its own), where it is another one in a git folder
   of the working directory: a hook may go on to other projects, such as those that a test makes.
6. git tidies a repository up before its command returns: in the background it would be killed with the sandbox, half
   done, and leave its locks.
"""

from __future__ import annotations

from omac.domain.kernel.paths import folder_of
from omac.domain.kernel.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_ORDINARY = """
    CI CLICOLOR CLICOLOR_FORCE COLORTERM COLUMNS EDITOR EMAIL FORCE_COLOR GIT_AUTHOR_EMAIL GIT_AUTHOR_NAME
    GIT_COMMITTER_EMAIL GIT_COMMITTER_NAME HOME LANG LANGUAGE LESS LINES LOGNAME NO_COLOR NPM_CONFIG_PREFIX PAGER PATH
    PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED SHELL TERM TERM_PROGRAM TERM_PROGRAM_VERSION TZ USER VISUAL
    XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME
"""
_TOOLCHAINS = """
    ASDF_DATA_DIR ASDF_DIR BUN_INSTALL DENO_INSTALL DOTNET_ROOT FNM_DIR GOENV_ROOT JENV_ROOT MISE_DATA_DIR NODENV_ROOT
    NVM_DIR OPAMROOT PYENV_ROOT RBENV_ROOT RUSTUP_HOME SDKMAN_DIR VOLTA_HOME
"""
_CERTIFICATES = """
    CURL_CA_BUNDLE GIT_SSL_CAINFO NIX_SSL_CERT_FILE NODE_EXTRA_CA_CERTS PIP_CERT REQUESTS_CA_BUNDLE SSL_CERT_DIR
    SSL_CERT_FILE
"""
_PROXIES = "ALL_PROXY FTP_PROXY HTTPS_PROXY HTTP_PROXY NO_PROXY all_proxy ftp_proxy http_proxy https_proxy no_proxy"
_BLOCKED = """
    BASH_ENV CDPATH DOTNET_STARTUP_HOOKS ENV GEM_HOME GEM_PATH GIT_ASKPASS GIT_CONFIG_GLOBAL GIT_CONFIG_PARAMETERS
    GIT_CONFIG_SYSTEM GIT_DIR GIT_EXEC_PATH GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND GIT_SSH GIT_SSH_COMMAND GIT_TEMPLATE_DIR
    GIT_WORK_TREE GLOBIGNORE GOFLAGS IFS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS NODE_OPTIONS NODE_PATH OP_CONNECT_HOST
    OP_CONNECT_TOKEN OP_SERVICE_ACCOUNT_TOKEN PERL5DB PERL5LIB PERL5OPT PROMPT_COMMAND PS4 PYTHONHOME PYTHONPATH
    PYTHONSTARTUP RUBYLIB RUBYOPT SHELLOPTS SSH_ASKPASS SUDO_ASKPASS ZDOTDIR _JAVA_OPTIONS
"""
_GIT = (  # git-config(1): what is tidied up is tidied up before a command ends, without what omac sets aside then
    "gc.autoDetach", "maintenance.autoDetach",
    "gc.writeCommitGraph", "fetch.writeCommitGraph", "maintenance.commit-graph.enabled",
)  # fmt: skip
GIT = {"GIT_CONFIG_COUNT": str(len(_GIT))}
GIT |= {f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_GIT)}
GIT |= {f"GIT_CONFIG_VALUE_{number}": "false" for number in range(len(_GIT))}
ORDINARY = tuple(f"{_ORDINARY}{_TOOLCHAINS}".split())  # the latter: where toolchains are installed
CERTIFICATES = tuple(_CERTIFICATES.split())  # they name a file or folder of certificates that a library trusts
PROXIES = tuple(_PROXIES.split())
BLOCKED = frozenset(_BLOCKED.split())  # what they hold makes other programs run code, or is a credential
_BLOCKED_PREFIXES = ("OP_SESSION_",)
_LOADER = ("GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "MALLOC_TRACE", "NLSPATH", "RESOLV_HOST_CONF")
_LOADER_PREFIXES = ("LD_", "DYLD_", "BASH_FUNC_")
_OWN = ("OMAC_JOURNAL", "OMAC_STATE_DIR", "OMAC_VAULT_KEY_FILE")
_OWN_PREFIXES = ("OMAC_SECRET_", "OMAC_SECRETS_", "OMAC_VAULT_")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_NAME = _LETTERS | frozenset("0123456789")


def filtered(
    host: Mapping[str, str],
    *,
    given: Iterable[str] = (),
    auth: Iterable[str] = (),
    additions: Mapping[str, str] | None = None,
    network: str = "host",
) -> dict[str, str]:
    """The environment of a confined program. `given` are "NAME" or "NAME=VALUE", `auth` names, `additions` omac's own.

    What is given counts more than the host's, an addition more than both. Raises Refusal (misuse) for a name
    that nobody may pass.
    """
    passed = {name: value for name, value in host.items() if name.startswith("LC_") and _NAME.issuperset(name)} | GIT
    names = (*ORDINARY, *CERTIFICATES, *auth, *(PROXIES if network == "host" else ()))
    passed.update((name, host[name]) for name in names if name in host)
    for variable in given:
        name, stated, value = variable.partition("=")
        _check(name, bool(stated))
        if stated:
            passed[name] = value
        elif name in host:
            passed[name] = host[name]
    if not passed.get("PATH"):
        passed["PATH"] = DEFAULT_PATH
    passed.update(additions or {})
    return passed


def named_index(host: Mapping[str, str], workdir: str, git_folders: Iterable[str]) -> list[str]:
    """Return the variable, to be given, by which the host's git names another index in one of these folders, if any."""
    named = host.get("GIT_INDEX_FILE", "")
    path = named if named.startswith("/") else f"{workdir}/{named}"
    folder = folder_of(path)
    is_another = named and folder in git_folders and path != f"{folder}/index"
    return [f"GIT_INDEX_FILE={path}"] if is_another else []


def warnings_of(environment: Mapping[str, str], given: Iterable[str], host: Mapping[str, str]) -> list[str]:
    """Return the warnings for a person about this environment: what was `given` and is not in it, since omac sets it
    itself, and passwords of proxies that the program gets to see."""
    wanted = {
        name: value if stated else host.get(name) for name, stated, value in (text.partition("=") for text in given)
    }
    unlike = [
        name
        for name, value in wanted.items()
        if value not in (None, environment.get(name)) and not name.startswith("OMAC_")  # omac gives those, too
    ]
    seen = [name for name in PROXIES if "@" in environment.get(name, "") and not name.lower().startswith("no_")]
    return [
        *(f"--env {name} has no effect: omac sets it; use -- env {name}=VALUE COMMAND" for name in unlike),
        *(f"{name} holds a password for the proxy, and the program can read it" for name in seen),
    ]


def _check(name: str, stated: bool) -> None:
    """Refuse a name that no program in a sandbox may get. Raises Refusal (misuse)."""
    if not name or name[0] not in _LETTERS or not _NAME.issuperset(name):
        message = f"{name[:40]!r} is not the name of a variable: --env takes NAME or NAME=VALUE"
        raise Refusal("misuse", message, fix=["env"])
    if name in _OWN or name.startswith(_OWN_PREFIXES):
        raise Refusal("misuse", f"{name} belongs to omac: programs in a sandbox never get it")
    if name in _LOADER or name.startswith(_LOADER_PREFIXES):
        raise Refusal(
            "misuse",
            f"{name} would also change the program that builds the sandbox, which runs outside it; "
            "set it for the command alone",
            fix=[f"omac sandbox run -- env {name}=VALUE COMMAND"],
        )
    if not stated and (name in BLOCKED or name.startswith(_BLOCKED_PREFIXES)):
        message = f"{name} makes other programs run code, or is a credential: --env passes it only with a value"
        raise Refusal("misuse", message, fix=[f'--env {name}="${name}"'])
