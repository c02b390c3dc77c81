"""A secret that `env_passthrough` names too: the stored value, else the host's variable; approved skills only."""

import json

import pytest
from polling import eventually
from real_omac import Omac
from valued_skill import PROGRAM, told, waiting, with_vault

pytestmark = pytest.mark.full

META = """\
name: slack
sidecar:
  command: [python3, -I, -S, sidecar.py]
  mount: chat
  health: {path: /status}
  env_passthrough: [TOKEN, SPARE]
  secrets:
    - {name: TOKEN, pattern: '^[a-z]{4}-.+$'}
    - {name: SPARE, required: false}
"""
HOST = {"TOKEN": "host-1", "SPARE": ""}


def test_the_stored_value_wins_and_the_host_fills_in(omac: Omac) -> None:
    """A secret goes from the host's variable to the stored value and back; `list` and `show` report each source."""
    with_vault(omac)
    project = omac.root / "shop"
    omac.skill(project, "slack", META, PROGRAM)
    where = ("--workdir", str(project))

    def shown(**extra: str) -> tuple[str, str]:
        document = json.loads(omac.run("config", "show", "slack", "--json", *where, extra=extra).out)
        (row,) = [row for row in document["secrets"] if row["name"] == "TOKEN"]
        assert "host-1" not in str(document)
        return row["source"], row["fingerprint"].partition(":")[0]

    assert shown() == ("missing-required", "<missing>")
    assert shown(**HOST) == ("env_passthrough:TOKEN", "<host variable>")
    assert shown(TOKEN="") == ("missing-required", "<missing>")
    rows = [json.loads(line) for line in omac.run("list", "--json", *where, extra=HOST).out.splitlines()]
    assert [(row["secrets_given"], row["secrets_from_host"]) for row in rows] == [([], ["TOKEN"])]
    assert "1/2 (1 from host)" in omac.run("list", *where, extra=HOST).out

    serving = omac.serve(extra=HOST)
    assert serving.skill(project, "slack")["state"] == "broken"  # not approved: the host's variable counts for nothing
    omac.approve(project, "slack")

    def has(value: str) -> bool:
        skill = serving.skill(project, "slack")
        values = told(skill) if skill["state"] == "ready" else None
        return values is not None and (values["TOKEN"], values["SPARE"]) == (value, None)

    eventually(lambda: has("host-1"), 10.0, "the host's variable")
    assert omac.run("secrets", "set", "slack", "TOKEN", *where, stdin=b"kept-1").status == 0
    eventually(lambda: has("kept-1"), 10.0, "the stored value")
    assert shown(**HOST) == ("stored", "hmac")
    assert "does not run without it" not in omac.run("secrets", "unset", "slack", "TOKEN", *where).err
    eventually(lambda: has("host-1"), 10.0, "the host's variable again")


def test_the_host_has_no_value_that_the_skill_takes(omac: Omac) -> None:
    """An empty variable of the host leaves the skill pending."""
    project = omac.root / "shop"
    omac.skill(project, "slack", META, PROGRAM)
    omac.approve(project, "slack")
    skill = waiting(omac.serve(extra={"TOKEN": ""}), project)
    assert (skill["state"], skill["missing"]) == ("pending_credentials", ["TOKEN"])


def test_a_variable_against_the_pattern(omac: Omac) -> None:
    """The skill is pending; the text names the variable and not its value."""
    project = omac.root / "shop"
    omac.skill(project, "slack", META, PROGRAM)
    omac.approve(project, "slack")
    detail = waiting(omac.serve(extra={"TOKEN": "NO-secret"}), project)["detail"]
    assert "(in $TOKEN)" in detail
    assert "NO-secret" not in detail
