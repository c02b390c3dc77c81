"""Old sandbox profiles: no key is dropped silently, and the new profile is TOML with keys that omac has."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.domain.legacy.go_profile import ADVICE, SECTIONS, is_go_profile, plan_of

OURS = {"allow", "read", "deny", "deny_names", "allow_env_files", "env", "network", "open_ports"}
KNOWN = sorted({"filesystem.allow", "filesystem.deny", "network.mode", "network.listen_port", *ADVICE})
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 70_000)
    | st.text(max_size=8)
    | st.sampled_from(["~/x", "*.pem", "open"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(KNOWN) | st.text(min_size=1, max_size=6).map(lambda key: f"network.{key}"), VALUES)
)
def test_every_key_with_a_value_is_in_the_plan(values: dict[str, object]) -> None:
    """Each key with a value is in the plan, whatever its value is. The new text can be read, and has no other keys than
    omac's."""
    document: dict[str, dict[str, object]] = {}
    for key, value in values.items():
        section, _, member = key.partition(".")
        document.setdefault(section, {})[member] = value
    plan = plan_of("old", "/c/old.json", document, "")
    given_keys = {key for key, value in values.items() if value not in (None, "", [], {})}
    assert {entry.key for entry in plan.keys} == given_keys
    assert all(entry.why for entry in plan.keys if entry.verdict != "take")
    written = tomllib.loads(plan.text)
    assert written.keys() <= OURS
    assert bool(written) == any(entry.verdict == "take" for entry in plan.keys)


@pytest.mark.parametrize(
    ("document", "is_old"),
    [
        ({"network": {"mode": "open"}}, True),
        ({"meta": {}}, True),
        ({"network": "none"}, False),
        ({"allow": []}, False),
        ({"env": {"A": "b"}, "network": "host"}, False),
        ({}, False),
        ([], False),
        (None, False),
        *(({section: {}}, True) for section in SECTIONS),
    ],
)
def test_which_form_is_the_old_one(document: object, is_old: bool) -> None:
    """A profile of omac's own in JSON does not count as an old one."""
    assert is_go_profile(document) == is_old
