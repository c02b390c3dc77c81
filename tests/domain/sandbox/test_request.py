"""domain/sandbox/request.py: flags, a profile and the settings fill the same fields, and override one another."""

import ast
import json
from pathlib import Path

import pytest

import omac
from omac.domain.sandbox.request import SandboxRequest, defaults, request_of
from omac.tools.hotpath.sandbox_options import OPTIONS

HOME = Path(omac.__path__[0])
FILES_MAX = 4  # CONTRIBUTING.md, "A sandbox option"
AGENTS_OWN_PORT = "tools/compose/agent_launch.py"  # fills open_ports for an agent that is a server
OF_THE_GO_OMAC = "domain/legacy/go_profile.py"  # its profiles have what they have: a new option is not among it


def test_what_is_typed_counts_most() -> None:
    """Words of the upper request replace those below; lists and limits hold both, the upper ones last."""
    base = request_of({"network": "none", "allow": ["/a"], "limits": {"pids": 1, "cpu": 2}, "redirect_xdg": True})
    typed = request_of({"network": "host", "allow": ["/b"], "limits": {"pids": 3}})
    merged = typed.over(base)
    assert (merged.network, merged.allow, merged.limits) == ("host", ["/a", "/b"], {"pids": 3, "cpu": 2})
    assert merged.redirect_xdg
    assert SandboxRequest().over(base).fields() == base.fields()
    assert (base.allow, typed.allow) == (["/a"], ["/b"])


def test_the_defaults_fill_in_the_rest() -> None:
    settled = SandboxRequest().over(defaults())
    assert (settled.backend, settled.network, settled.git_hooks, settled.git_refs) == ("auto", "host", "deny", "all")


def test_a_request_survives_json() -> None:
    """A request survives JSON, as omac start hands it to its child: paths that are not Unicode and amounts included."""
    request = request_of({"command": ["a", "\udcff"], "limits": {"cpu": 1.5}, "open_ports": [80], "ssh_agent": True})
    assert request_of(json.loads(json.dumps(request.fields()))).fields() == request.fields()


def test_a_field_that_no_request_has() -> None:
    with pytest.raises(AttributeError):
        request_of({"nothing": 1})


@pytest.mark.full
@pytest.mark.parametrize("field", ["allow_env_files", "deny_names", "ephemeral_cache", "open_ports", "weaker_git"])
def test_an_option_is_in_few_files(field: str) -> None:
    """An option's field is named by no more modules than CONTRIBUTING.md lists for an option."""
    assert field in {option.field for option in OPTIONS}
    layers = ("domain", "journal", "projections", "services", "adapters", "tools")
    sources = {path.relative_to(HOME).as_posix(): path for layer in layers for path in (HOME / layer).rglob("*.py")}
    naming = {name for name, path in sources.items() if field in _names(path.read_text())} - {
        AGENTS_OWN_PORT,
        OF_THE_GO_OMAC,
    }
    assert {"domain/sandbox/request.py", "tools/hotpath/sandbox_options.py"} <= naming
    assert len(naming) <= FILES_MAX, sorted(naming)


def _names(source: str) -> set[object]:
    """Return the attributes and texts in a source."""
    nodes = list(ast.walk(ast.parse(source)))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {*texts, *(node.attr for node in nodes if isinstance(node, ast.Attribute))}
