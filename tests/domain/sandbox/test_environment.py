"""domain/sandbox/environment.py: the variables that a confined program gets."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import failing

from omac.domain.harness.table import harness_named
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.environment import (
    BLOCKED,
    CERTIFICATES,
    DEFAULT_PATH,
    GIT,
    ORDINARY,
    PROXIES,
    filtered,
    named_index,
    warnings_of,
)

HOST = {
    "HOME": "/home/ada",
    "PATH": "/home/ada/bin:/usr/bin",
    "LANG": "C.UTF-8",
    "LC_TIME": "de_DE.UTF-8",
    "TERM": "xterm",
    "SSL_CERT_FILE": "/etc/ours.pem",
    "https_proxy": "http://proxy:3128",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "OMAC_STATE_DIR": "/home/ada/state",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "DISPLAY": ":0",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "LD_PRELOAD": "/tmp/x.so",
    "NODE_OPTIONS": "--require /tmp/x.js",
    "ANTHROPIC_API_KEY": "key",
    "TMPDIR": "/home/ada/tmp",
}
PASSED = {"HOME", "PATH", "LANG", "LC_TIME", "TERM", "SSL_CERT_FILE", "https_proxy"}


def test_only_what_is_listed_passes() -> None:
    """The rest of the host's environment, credentials and sockets among it, does not exist inside."""
    assert filtered(HOST) == {name: HOST[name] for name in PASSED} | GIT


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("AWS_SECRET_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "s3cret"),
        ("AWS_PROFILE=work", "AWS_PROFILE", "work"),
        ("DISPLAY", "DISPLAY", ":0"),
        ("NODE_OPTIONS=--max-old-space-size=4096", "NODE_OPTIONS", "--max-old-space-size=4096"),
        ("EMPTY=", "EMPTY", ""),
        ("LANG=C", "LANG", "C"),
        ("GIT_CONFIG_COUNT=1", "GIT_CONFIG_COUNT", "1"),
        ("OMAC_ECHO_BASE=x", "OMAC_ECHO_BASE", "x"),
    ],
)
def test_what_a_person_names_passes(option: str, name: str, value: str) -> None:
    """A variable that the user names passes with the host's value, or with the one that is written."""
    assert filtered(HOST, given=[option])[name] == value


def test_a_name_without_a_value_outside_is_left_out() -> None:
    """A named variable that has no value outside is left out, as by every other program that passes variables on."""
    assert "UNHEARD_OF" not in filtered(HOST, given=["UNHEARD_OF"])


def test_what_makes_programs_run_code_passes_only_written_out() -> None:
    """A variable that makes programs run code passes only with a value that is written out, since the host's would be
    unseen."""

    def check(name: str) -> None:
        with pytest.raises(Refusal, match="only with a value") as caught:
            filtered({name: "x"}, given=[name])
        assert caught.value.reason == "misuse"
        assert filtered({}, given=[f"{name}=y"])[name] == "y"

    assert failing(check, ((name,) for name in sorted(BLOCKED))) == []


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "GCONV_PATH", "BASH_FUNC_x"]
)
def test_what_the_loader_obeys_never_passes(name: str) -> None:
    """bubblewrap is started with this environment, outside: a variable of the loader would run code there."""
    for option in (name, f"{name}=/tmp/x.so"):
        with pytest.raises(Refusal, match="outside it") as caught:
            filtered({name: "x"}, given=[option])
        assert caught.value.fix


@pytest.mark.parametrize(
    "name", ["OMAC_STATE_DIR", "OMAC_JOURNAL", "OMAC_VAULT_KEY_FILE", "OMAC_SECRET_X", "OMAC_VAULT_PASSPHRASE"]
)
def test_what_is_omacs_own_never_passes(name: str) -> None:
    """omac's own variables are refused, named or written out, since they would lead to hidden files."""
    for option in (name, f"{name}=x"):
        with pytest.raises(Refusal, match="belongs to omac"):
            filtered({name: "x"}, given=[option])


@pytest.mark.parametrize("option", ["", "=x", "A B=c", "1A", "A-B", "A*", "Ä", "A\n"])
def test_what_is_no_name_is_refused(option: str) -> None:
    """A pattern, or another text that is no variable's name, is refused: each variable that passes is named."""
    with pytest.raises(Refusal, match="not the name of a variable"):
        filtered(HOST, given=[option])


def test_a_harness_gets_its_credentials() -> None:
    """A harness gets the credentials of its own table, and of no other harness's."""
    assert filtered(HOST, auth=harness_named("claude").auth_variables({}))["ANTHROPIC_API_KEY"] == "key"
    assert "ANTHROPIC_API_KEY" not in filtered(HOST, auth=harness_named("codex").auth_variables({}))


def test_proxies_pass_with_the_hosts_network_alone() -> None:
    """Without a network, proxies do not pass: they lead nowhere and would only show their password."""
    assert "https_proxy" in filtered(HOST)
    assert "https_proxy" not in filtered(HOST, network="none")


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({"https_proxy": "http://ada:pass@proxy:3128"}, 1),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "a@b"}, 0),
        ({}, 0),
    ],
)
def test_a_password_in_a_proxy_is_reported(environment: dict[str, str], count: int) -> None:
    """A proxy with a password passes, since there is no other way out. The user is warned, and the password is not
    repeated."""
    warnings = warnings_of(filtered(environment), (), environment)
    assert len(warnings) == count
    assert "pass@" not in "".join(warnings)


def test_what_omac_adds_counts_most() -> None:
    """omac's additions replace the host's variables and those that were given, and a PATH is always set."""
    made = filtered(HOST, given=["A=1", "HOME=/x"], additions={"HOME": "/home/ada", "PWD": "/w"})
    assert (made["HOME"], made["PWD"], made["A"]) == ("/home/ada", "/w", "1")
    assert filtered({})["PATH"] == DEFAULT_PATH


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        ("/w/.git/next-index-7.lock", "/w/.git/next-index-7.lock"),
        (".git/next-index-7.lock", "/w/.git/next-index-7.lock"),
        ("/w/.git/index", None),
        ("/other/.git/next-index-7.lock", None),
        ("", None),
        (None, None),
    ],
)
def test_an_index_of_the_project_passes(value: str | None, passes: str | None) -> None:
    """git names an index in one of the project's git folders, other than the usual one."""
    host = {} if value is None else {"GIT_INDEX_FILE": value}
    for workdir in ("/w", "/bare"):
        named = named_index(host, workdir, ["/w/.git", "/bare"])
        wanted = passes if workdir == "/w" or (value or "").startswith("/") else None
        assert named == ([f"GIT_INDEX_FILE={wanted}"] if wanted else [])


NAMES = st.one_of(
    st.sampled_from([*ORDINARY, *PROXIES, *CERTIFICATES, *BLOCKED, *HOST]),
    st.text(string.ascii_uppercase + "_%()", min_size=1, max_size=12),
)


@given(st.dictionaries(NAMES, st.text(max_size=4), max_size=12))
def test_nothing_passes_by_itself(host: dict[str, str]) -> None:
    """Each variable inside is listed, begins with LC_, or is a setting of git, whatever the host's environment is."""
    listed = {*ORDINARY, *PROXIES, *CERTIFICATES}
    for name, value in filtered(host).items() - GIT.items():
        assert name in listed or name.startswith("LC_")
        assert value == (host.get(name) or DEFAULT_PATH if name == "PATH" else host[name])
