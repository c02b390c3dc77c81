from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.skills.contract import parse_meta
from omac.domain.skills.meta import Config, Health, Limits, Meta, MetaError, Secret, SidecarMeta, UnknownKey

SECTIONS = ("command", "env_passthrough", "secrets", "config", "health", "limits", "install_scripts", "protocols")


def document(**sidecar: Any) -> dict[str, Any]:
    return {"name": "echo", "sidecar": {"command": ["run"], **sidecar}}


def sidecar_of(**sidecar: Any) -> SidecarMeta:
    meta = parse_meta(document(**sidecar))
    assert meta.sidecar is not None
    return meta.sidecar


def setting(**config: Any) -> Config:
    return sidecar_of(config=[{"name": "X", **config}]).config[0]


def test_the_shortest_sidecar_takes_every_default() -> None:
    """A name and a command are enough; the mount is the skill's name."""
    assert parse_meta(document()) == Meta(name="echo", sidecar=SidecarMeta(command=("run",), mount="echo"))


@pytest.mark.parametrize("sidecar", [{}, {"sidecar": None}])
def test_guidance_only(sidecar: dict[str, Any]) -> None:
    """A skill without a sidecar section is guidance, whatever its name looks like."""
    assert parse_meta({"name": "Guide_1.x", **sidecar}) == Meta(name="Guide_1.x")


def test_a_whole_contract() -> None:
    """Every field arrives where it belongs; unknown keys on every level are ignored and listed."""
    meta = parse_meta(
        {
            "name": "Echo.Rest",
            "version": "1.2",
            "description": "says it again",
            "author": {"known": "and not read"},
            "later": {"author": True},
            7: "not even text",
            "sidecar": {
                "command": ["python3", "-m", "echo", "--port=${SIDECAR_PORT}"],
                "mount": "echo-rest",
                "env_passthrough": ["HTTP_PROXY", "_X"],
                "secrets": [
                    {"name": "TOKEN", "later": 1},
                    {
                        "name": "KEY",
                        "description": "the key",
                        "required": False,
                        "pattern": "^-----BEGIN",
                        "default_from_env": "TOKEN",
                        "multiline": True,
                    },
                ],
                "config": [{"name": "MODE", "type": "enum", "choices": ["a", 1, True], "default": 1}],
                "health": {"path": "/ready?x=1", "timeout_ms": 1},
                "limits": {"max_body_bytes": 0, "idle_timeout_secs": 60},
                "install_scripts": {"linux": "scripts/install.sh", "beos": 5},
                "protocols": ["http", "ws"],
            },
        }
    )
    assert meta == Meta(
        name="Echo.Rest",
        version="1.2",
        description="says it again",
        sidecar=SidecarMeta(
            command=("python3", "-m", "echo", "--port=${SIDECAR_PORT}"),
            mount="echo-rest",
            env_passthrough=("HTTP_PROXY", "_X"),
            secrets=(
                Secret("TOKEN"),
                Secret("KEY", "the key", False, "^-----BEGIN", "TOKEN", True),
            ),
            config=(Config("MODE", type="enum", choices=("a", "1", "true"), default="1"),),
            health=Health(path="/ready?x=1", timeout_ms=1),
            limits=Limits(max_body_bytes=0, idle_timeout_secs=60),
            install_scripts={"linux": "scripts/install.sh"},
            protocols=("http", "ws"),
        ),
        unknown_keys=(
            UnknownKey("", "later"),
            UnknownKey("", None),
            UnknownKey("sidecar.secrets[0]", "later"),
            UnknownKey("sidecar.install_scripts", "beos"),
        ),
    )


@pytest.mark.parametrize(
    ("kind", "given_default", "seen"),
    [
        *(("bool", word, "true") for word in (True, "true", "T", "Yes", "y", "1", 1, "ON")),
        *(("bool", word, "false") for word in (False, "false", "F", "no", "N", "0", 0, "off")),
        ("int", 7, "7"),
        ("int", "007", "7"),
        ("int", " +7 ", "7"),
        ("int", "-0", "0"),
        ("int", -(2**63), str(-(2**63))),
        ("string", True, "true"),
        ("string", 7, "7"),
        ("string", "", ""),
        ("string", None, None),
    ],
)
def test_a_default_has_one_spelling(kind: str, given_default: object, seen: str | None) -> None:
    """A default has one spelling for the sidecar, however it is written."""
    assert setting(type=kind, default=given_default).default == seen


@pytest.mark.parametrize(("version", "text"), [("1.0", "1.0"), (2, "2"), (1.5, "1.5"), (None, "")])
def test_a_version_may_be_a_number(version: object, text: str) -> None:
    """A version that was not put in quotes is still a version: it only informs."""
    assert parse_meta({"name": "echo", "version": version}).version == text


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (None, ""),
        ([], ""),
        ("name: x", ""),
        ({}, "name"),
        ({"name": None}, "name"),
        ({"name": 5}, "name"),
        ({"name": ""}, "name"),
        ({"name": "-x"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"name": "x\n"}, "name"),
        ({"name": "é"}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"name": "x\0"}, "name"),
        ({"name": "x", "description": "\ud800"}, "description"),
        ({"name": "x", "description": ["a"]}, "description"),
        ({"name": "x", "version": 10**5000}, "version"),
        ({"name": "x", "version": [1]}, "version"),
        ({"name": "x", "sidecar": []}, "sidecar"),
        ({"name": "x", "sidecar": True}, "sidecar"),
        ("\ud800", ""),
        ({"name": "x", "sidecar": "\ud800", "author": "\ud801", "version": {"\x1b": "\ud802"}}, "sidecar"),
        ({"name": "x", "sidecar": {}}, "sidecar.command"),
        ({"name": "Upper", "sidecar": {"command": ["run"]}}, "sidecar.mount"),
    ],
)
def test_documents_that_are_no_skill(bad: object, field: str) -> None:
    """A document that breaks the contract is refused, and the error names the field."""
    with pytest.raises(MetaError) as caught:
        parse_meta(bad)
    assert caught.value.field == field
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("sidecar", "field"),
    [
        ({"command": []}, "sidecar.command"),
        ({"command": "run me"}, "sidecar.command"),
        ({"command": ["run", ""]}, "sidecar.command[1]"),
        ({"command": ["run", "a\0b"]}, "sidecar.command[1]"),
        ({"command": ["sleep", 5]}, "sidecar.command[1]"),
        ({"command": [["run"]]}, "sidecar.command[0]"),
        *(({section: "\ud800"}, f"sidecar.{section}") for section in SECTIONS),
        ({"secrets": ["\ud800"]}, "sidecar.secrets[0]"),
        ({"secrets": [{"name": "A", "required": "\ud800"}]}, "sidecar.secrets[0].required"),
        ({"health": {"timeout_ms": "\ud800"}}, "sidecar.health.timeout_ms"),
        ({"mount": ""}, "sidecar.mount"),
        ({"mount": "__global__"}, "sidecar.mount"),
        ({"mount": "Echo"}, "sidecar.mount"),
        ({"mount": "a/b"}, "sidecar.mount"),
        ({"mount": "echo\n"}, "sidecar.mount"),
        ({"mount": "a" * 64}, "sidecar.mount"),
        ({"mount": 5}, "sidecar.mount"),
        ({"env_passthrough": "PATH"}, "sidecar.env_passthrough"),
        ({"env_passthrough": {"PATH": 1}}, "sidecar.env_passthrough"),
        ({"env_passthrough": ["A", None]}, "sidecar.env_passthrough[1]"),
        ({"env_passthrough": ["A", "1a"]}, "sidecar.env_passthrough[1]"),
        ({"env_passthrough": ["A=B"]}, "sidecar.env_passthrough[0]"),
        ({"env_passthrough": ["A", "A"]}, "sidecar.env_passthrough[1]"),
        ({"secrets": {"name": "A"}}, "sidecar.secrets"),
        ({"secrets": ["A"]}, "sidecar.secrets[0]"),
        ({"secrets": [{}]}, "sidecar.secrets[0].name"),
        ({"secrets": [{"name": "A"}, {"name": "A"}]}, "sidecar.secrets[1].name"),
        ({"secrets": [{"name": "A"}, {"name": "A"}], "env_passthrough": ["A"]}, "sidecar.secrets[1].name"),
        ({"config": [{"name": "A"}], "env_passthrough": ["A"]}, "sidecar.config[0].name"),
        ({"secrets": [{"name": "A"}], "config": [{"name": "B"}, {"name": "A"}]}, "sidecar.config[1].name"),
        ({"secrets": [{"name": "SIDECAR_PORT"}]}, "sidecar.secrets[0].name"),
        ({"secrets": [{"name": "SIDECAR_SKILL"}]}, "sidecar.secrets[0].name"),
        ({"env_passthrough": ["OMAC_BASE"]}, "sidecar.env_passthrough[0]"),
        ({"config": [{"name": "LD_PRELOAD", "default": "./x.so"}]}, "sidecar.config[0].name"),
        ({"config": [{"name": "DYLD_INSERT_LIBRARIES"}]}, "sidecar.config[0].name"),
        ({"config": [{"name": "PATH", "default": "/srv/bin"}]}, "sidecar.config[0].name"),
        ({"env_passthrough": ["PATH"], "secrets": [{"name": "PATH"}]}, "sidecar.secrets[0].name"),
        ({"secrets": [{"name": "A", "required": "yes"}]}, "sidecar.secrets[0].required"),
        ({"secrets": [{"name": "A", "multiline": 1}]}, "sidecar.secrets[0].multiline"),
        ({"secrets": [{"name": "A", "pattern": "("}]}, "sidecar.secrets[0].pattern"),
        ({"secrets": [{"name": "A", "pattern": "(?\x1b)"}]}, "sidecar.secrets[0].pattern"),
        ({"secrets": [{"name": "A", "pattern": "a" * 513}]}, "sidecar.secrets[0].pattern"),
        ({"secrets": [{"name": "A", "pattern": "a{1001}"}]}, "sidecar.secrets[0].pattern"),
        ({"secrets": [{"name": "A", "pattern": "(((a{9}){9}){9}){9}"}]}, "sidecar.secrets[0].pattern"),
        ({"secrets": [{"name": "A", "pattern": "(?=a)"}]}, "sidecar.secrets[0].pattern"),
        ({"secrets": [{"name": "A", "pattern": "(a)\\1"}]}, "sidecar.secrets[0].pattern"),
        ({"secrets": [{"name": "A", "default_from_env": "a b"}]}, "sidecar.secrets[0].default_from_env"),
        ({"config": [{"name": "A", "type": "float"}]}, "sidecar.config[0].type"),
        ({"config": [{"name": "A", "type": 1}]}, "sidecar.config[0].type"),
        ({"config": [{"name": "A", "type": "int", "pattern": "1"}]}, "sidecar.config[0].pattern"),
        ({"config": [{"name": "A", "choices": ["x"]}]}, "sidecar.config[0].choices"),
        ({"config": [{"name": "A", "type": "enum"}]}, "sidecar.config[0].choices"),
        ({"config": [{"name": "A", "type": "enum", "choices": []}]}, "sidecar.config[0].choices"),
        ({"config": [{"name": "A", "type": "enum", "choices": ["x", "x"]}]}, "sidecar.config[0].choices"),
        ({"config": [{"name": "A", "type": "enum", "choices": [""]}]}, "sidecar.config[0].choices"),
        ({"config": [{"name": "A", "type": "enum", "choices": [[]]}]}, "sidecar.config[0].choices[0]"),
        ({"config": [{"name": "A", "type": "enum", "choices": ["x"], "default": "y"}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "type": "bool", "default": "maybe"}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "type": "bool", "default": 2}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "type": "int", "default": True}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "type": "int", "default": "0x10"}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "type": "int", "default": "1_000"}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "type": "int", "default": "\u0663"}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "type": "int", "default": 2**63}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "type": "int", "default": "9" * 5000}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "default": 1.5}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "default": "a\0b"}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "default": "a" * 122_881}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "default": "b", "pattern": "^a"}]}, "sidecar.config[0].default"),
        ({"config": [{"name": "A", "default": 7, "pattern": "^[a-z]*$"}]}, "sidecar.config[0].default"),
        ({"health": "/status"}, "sidecar.health"),
        ({"health": {"path": ""}}, "sidecar.health.path"),
        ({"health": {"path": "status"}}, "sidecar.health.path"),
        ({"health": {"path": "/a b"}}, "sidecar.health.path"),
        ({"health": {"path": "/a\r\nHost: x"}}, "sidecar.health.path"),
        ({"health": {"path": "/é"}}, "sidecar.health.path"),
        ({"health": {"timeout_ms": 0}}, "sidecar.health.timeout_ms"),
        ({"health": {"timeout_ms": 600_001}}, "sidecar.health.timeout_ms"),
        ({"health": {"timeout_ms": "5000"}}, "sidecar.health.timeout_ms"),
        ({"health": {"timeout_ms": True}}, "sidecar.health.timeout_ms"),
        ({"health": {"interval_ms": 0}}, "sidecar.health.interval_ms"),
        ({"health": {"interval_ms": 0.5}}, "sidecar.health.interval_ms"),
        ({"health": {"initial_delay_ms": -1}}, "sidecar.health.initial_delay_ms"),
        ({"limits": {"max_body_bytes": -1}}, "sidecar.limits.max_body_bytes"),
        ({"limits": {"max_body_bytes": 2**40 + 1}}, "sidecar.limits.max_body_bytes"),
        ({"limits": {"max_body_bytes": 10**5000}}, "sidecar.limits.max_body_bytes"),
        ({"limits": {"idle_timeout_secs": "1m"}}, "sidecar.limits.idle_timeout_secs"),
        ({"install_scripts": ["x"]}, "sidecar.install_scripts"),
        ({"install_scripts": {"linux": "/bin/sh"}}, "sidecar.install_scripts.linux"),
        ({"install_scripts": {"macos": "a/../../b"}}, "sidecar.install_scripts.macos"),
        ({"install_scripts": {"wsl": "a\x1b[2Jb"}}, "sidecar.install_scripts.wsl"),
        ({"protocols": "http"}, "sidecar.protocols"),
        ({"protocols": [1]}, "sidecar.protocols[0]"),
    ],
)
def test_sidecars_that_break_the_contract(sidecar: dict[str, Any], field: str) -> None:
    """Each mistake is reported with the dotted path of its field, in text that a terminal can show."""
    with pytest.raises(MetaError) as caught:
        sidecar_of(**sidecar)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "sidecar",
    [
        {"health": {"initial_delay_ms": 0, "timeout_ms": 600_000, "interval_ms": 600_000}},
        {"limits": {"max_body_bytes": 2**40}},
        {"mount": "a" * 63},
        {"mount": "0-"},
        {"secrets": [{"name": "A", "pattern": "a" * 512}]},
        {"secrets": [{"name": "A", "pattern": r"(?i)^(?P<kind>\\pL{1,64})\\z"}]},
        {"config": [{"name": "A", "pattern": "b$", "default": "ab"}]},
        {"env_passthrough": None, "secrets": None, "config": None, "health": None, "limits": None, "protocols": None},
        {"env_passthrough": ["SIDECAR_PORTS", "LDFLAGS", "OMACS", "PATH"]},
    ],
)
def test_the_edges_are_inside(sidecar: dict[str, Any]) -> None:
    """The largest and smallest values that the contract names are accepted, and null means absent."""
    sidecar_of(**sidecar)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=12,
)
words = st.sampled_from(
    ["echo", "A", "B", "OMAC_X", "int", "enum", "string", "/status", "1", "true", "(", "[a-z]", "\ud800"]
)


def shaped(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return mappings that mostly hold fitting values and sometimes any, so that deep fields are reached."""
    return st.fixed_dictionaries({}, optional={key: value | json_values for key, value in keys.items()})


declared = shaped(
    name=words,
    description=words,
    type=words,
    required=st.booleans(),
    default=words | st.integers(),
    default_from_env=words,
    pattern=words,
    choices=st.lists(words, max_size=3),
    multiline=st.booleans(),
)
likely_documents = st.fixed_dictionaries(
    {
        "name": words,
        "sidecar": st.fixed_dictionaries(
            {"command": st.lists(words, min_size=1, max_size=3), "mount": st.just("echo")},
            optional={
                "env_passthrough": st.lists(words, max_size=2) | json_values,
                "secrets": st.lists(declared, max_size=2) | json_values,
                "config": st.lists(declared, max_size=2) | json_values,
                "health": shaped(path=words, initial_delay_ms=st.integers(), timeout_ms=st.integers()),
                "limits": shaped(max_body_bytes=st.integers(), idle_timeout_secs=st.integers()),
                "install_scripts": shaped(linux=words),
                "protocols": st.lists(words, max_size=2) | json_values,
            },
        )
        | json_values,
    }
)


@given(json_values | likely_documents)
def test_any_document_is_a_skill_or_a_named_error(value: object) -> None:
    """Any document gives a Meta or a MetaError, and no other error."""
    answer: Meta | MetaError
    try:
        answer = parse_meta(value)
    except MetaError as error:
        answer = error
    assert isinstance(answer, Meta) or str(answer).isprintable()
