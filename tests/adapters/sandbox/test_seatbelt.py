"""Profiles for macOS: as they were reviewed, and correctly quoted for any path.

The profile is read back by a parser of its own, and judged as Seatbelt does: the last rule that fits counts.
"""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.sandbox import seatbelt
from omac.domain.kernel.refusal import Refusal
from omac.domain.sandbox.confinement import COPY, DENY, LINK, PRIVATE, READ, WRITE, Entry, Policy

GOLDEN = Path(__file__).parent / "golden"
HOME = "/Users/ada"
COMMON = f"{HOME}/src/app/.git"
ADMIN = f"{COMMON}/worktrees/feature"
TREE = f"{HOME}/src/feature"

Form = str | list["Form"]


def entries(*rows: tuple[str, str]) -> tuple[Entry, ...]:
    """Entries without a reason, in any order."""
    return tuple(Entry(path, access, "test") for path, access in rows)


PLAIN = Policy(TREE, entries((TREE, WRITE), ("/opt/homebrew", READ)), {}, ports=(3000,))
UNDER = Policy(
    TREE,
    entries((TREE, WRITE), (f"{TREE}/secrets", DENY), (f"{TREE}/secrets/public", READ), (f"{TREE}/.env", DENY)),
    {},
    hidden=(f"{HOME}/.local/state/omac",),
    network="none",
)
WORKTREE = Policy(
    TREE,
    entries(
        (TREE, WRITE),
        (f"{TREE}/.git", READ),
        (COMMON, READ),
        (f"{COMMON}/hooks", DENY),
        (f"{COMMON}/objects", WRITE),
        (f"{COMMON}/objects/info", READ),
        (f"{COMMON}/refs", WRITE),
        (ADMIN, WRITE),
        (f"{ADMIN}/commondir", READ),
        (f"{ADMIN}/gitdir", READ),
    ),
    {},
    fence=(f"{COMMON}/objects", f"{COMMON}/refs", ADMIN),
)
HOOKS = Policy(
    TREE, entries((TREE, WRITE), (f"{TREE}/.git/hooks", READ), (f"{TREE}/.git/config", READ), ("/tmp/box", WRITE)), {}
)
POLICIES = {"plain": PLAIN, "deny_under_allow": UNDER, "linked_worktree": WORKTREE, "git_hooks": HOOKS}


@pytest.mark.parametrize("name", POLICIES)
def test_the_profile_is_the_reviewed_one(name: str) -> None:
    """A change of a profile's text shows up in review."""
    text = seatbelt.profile(POLICIES[name])
    file = GOLDEN / f"{name}.sb"
    if os.environ.get("OMAC_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(
    ("policy", "operation", "path", "allowed"),
    [
        (PLAIN, "file-write-data", f"{TREE}/a", True),
        (PLAIN, "file-write-data", f"{HOME}/src/other", False),
        (PLAIN, "file-read-data", f"{HOME}/.ssh/id_ed25519", False),
        (PLAIN, "file-read-metadata", HOME, True),
        (PLAIN, "file-read-data", HOME, False),
        (PLAIN, "file-read-data", "/opt/homebrew/bin/node", True),
        (PLAIN, "file-write-data", "/opt/homebrew/bin/node", False),
        (PLAIN, "process-exec", "/opt/homebrew/bin/node", True),
        (PLAIN, "process-exec", f"{HOME}/bin/node", False),
        (PLAIN, "file-write-unlink", f"{TREE}/a", True),
        (PLAIN, "file-write-unlink", TREE, False),
        (PLAIN, "file-write-setugid", f"{TREE}/a", False),
        (PLAIN, "file-read-data", "/usr/lib/dyld", True),
        (PLAIN, "file-read-data", f"/System/Volumes/Data{HOME}/.ssh/id_ed25519", False),
        (PLAIN, "file-link", f"{TREE}/a", False),
        (UNDER, "file-read-data", f"{TREE}/secrets/key", False),
        (UNDER, "file-read-metadata", f"{TREE}/secrets/key", False),
        (UNDER, "file-read-data", f"{TREE}/secrets/public/a", True),
        (UNDER, "file-write-data", f"{TREE}/secrets/public/a", False),
        (UNDER, "file-write-create", f"{TREE}/.env", False),
        (UNDER, "file-write-create", f"{TREE}/.environment", True),
        (UNDER, "file-read-data", f"{HOME}/.local/state/omac/journal", False),
        (WORKTREE, "file-write-create", f"{COMMON}/objects/ab/cd", True),
        (WORKTREE, "file-write-create", f"{COMMON}/objects/info/alternates", False),
        (WORKTREE, "file-write-create", f"{COMMON}/hooks/pre-commit", False),
        (WORKTREE, "file-write-data", f"{COMMON}/config", False),
        (WORKTREE, "file-write-unlink", f"{ADMIN}/commondir", False),
        (WORKTREE, "file-write-create", f"{ADMIN}/index.lock", True),
        (WORKTREE, "file-write-unlink", f"{TREE}/.git", False),
        (WORKTREE, "file-write-create", f"{COMMON}/worktrees/other/x", False),
        (HOOKS, "file-write-create", f"{TREE}/.git/hooks/pre-commit", False),
        (HOOKS, "file-write-unlink", f"{TREE}/.git", False),
        (HOOKS, "file-write-unlink", f"{TREE}/.git/index", True),
        (HOOKS, "file-write-data", "/private/tmp/box/a", True),
        (HOOKS, "file-write-data", "/private/tmp/a", False),
    ],
)
def test_the_last_rule_that_fits_decides(policy: Policy, operation: str, path: str, allowed: bool) -> None:
    """What the longest entry says holds; nothing named, nor a folder on the way to it, can be renamed."""
    assert decides(seatbelt.profile(policy), operation, path) is allowed


def test_omac_stays_out_of_reach_whatever_is_allowed() -> None:
    """No entry opens what omac keeps for itself, and no folder around it can be moved away."""
    state = f"{HOME}/.local/state/omac"
    policy = Policy(TREE, entries((HOME, WRITE), (state, WRITE)), {}, hidden=(state,))
    text = seatbelt.profile(policy)
    for operation in ("file-read-data", "file-write-create", "process-exec", "file-read-metadata"):
        assert decides(text, operation, f"{state}/journal") is False
    assert decides(text, "file-write-unlink", f"{HOME}/.local") is False
    assert decides(text, "file-write-unlink", f"{HOME}/.cache") is True


def test_ports_and_the_network() -> None:
    """With the host's network every address can be called and only named ports listened on; without, nothing."""
    text = seatbelt.profile(PLAIN)
    assert '(allow network-outbound (remote ip "*:*"))' in text
    assert '(allow network-bind network-inbound (local ip "*:3000"))' in text
    assert text.count("local ip") == 1
    alone = seatbelt.profile(UNDER)
    assert " ip " not in alone
    assert "mDNSResponder" not in alone
    assert "trustd" not in alone


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (Policy("/w", entries(("/w/t", PRIVATE)), {}), "/w/t: a private folder"),
        (Policy("/w", (Entry("/w/c", COPY, "", content=b"x"),), {}), "/w/c: a private copy"),
        (Policy("/w", (Entry("/w/c", READ, "", source="/x"),), {}), "showing /x there"),
        (Policy("/w", entries(("/w/a\nb", READ)), {}), "control character"),
        (Policy("/w", entries(("/w/a\x7fb", READ)), {}), "control character"),
        (Policy("/w", entries(("/w/a\udcff", READ)), {}), "not UTF-8"),
        (Policy("/w", entries(("/w/../x", READ)), {}), "not absolute and canonical"),
        (Policy("/w", entries(("w", READ)), {}), "not absolute and canonical"),
        (Policy("/w", (), {}, hidden=("/a\nb",)), "control character"),
        (Policy("/w", (), {}, limits={"cpu": 1.0}), "the limit cpu"),
    ],
)
def test_what_cannot_be_expressed_is_refused(policy: Policy, says: str) -> None:
    """Nothing is left out in silence: what Seatbelt cannot keep is refused, with what is asked for instead."""
    with pytest.raises(Refusal) as caught:
        seatbelt.command(policy, ["true"])
    assert caught.value.reason == "sandbox-inexpressible"
    assert says in caught.value.message
    assert caught.value.exit_code == 7


def test_the_command() -> None:
    """The program's arguments come after the profile and are its own, whatever they look like."""
    line = seatbelt.command(PLAIN, ["echo", "-p", "--"])
    assert line == ["/usr/bin/sandbox-exec", "-p", seatbelt.profile(PLAIN), "--", "echo", "-p", "--"]


NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
ODD = st.lists(st.sampled_from(['"', "\\", "(", ")", ";", "#", " ", "'", "é", "a", '")(allow default)("']), min_size=1)
PATHS = st.lists((NAMES | ODD.map("".join)).filter(lambda name: name not in (".", "..")), min_size=1, max_size=4)


@given(st.lists(st.tuples(PATHS, st.sampled_from([READ, WRITE, DENY, LINK])), min_size=1, max_size=5), PATHS)
def test_any_path_is_a_string_and_nothing_else(rows: list[tuple[list[str], str]], hidden: list[str]) -> None:
    """Whatever a path is called, the profile is well-formed, names that path, and has no rule that the path wrote."""
    named = {"/w/" + "/".join(parts): access for parts, access in rows}
    policy = Policy("/w", entries(*named.items()), {}, hidden=("/h/" + "/".join(hidden),))
    forms = parse(seatbelt.profile(policy))
    assert forms[:2] == [["version", "1"], ["deny", "default"]]
    assert all(isinstance(form, list) and form[0] in ("allow", "deny") for form in forms[2:])
    assert ["allow", "default"] not in forms
    said = {filter_[1] for form in forms for filter_ in form if isinstance(filter_, list) and len(filter_) == 2}
    assert {*named, policy.hidden[0]} <= said


def test_the_parser_sees_a_path_that_is_not_quoted() -> None:
    """A profile whose paths are not quoted would be found: the parser reads other rules, or none."""
    text = seatbelt.profile(Policy("/w", entries(('/w/")) (allow default) (deny file* (literal "', READ)), {}))
    assert ["allow", "default"] not in parse(text)
    assert ["allow", "default"] in parse(text.replace('\\"', '"'))


def parse(text: str) -> list[Form]:
    """The forms of a profile: lists, and texts for words and strings. Raises ValueError where it is not well-formed."""
    stack: list[list[Form]] = [[]]
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "(":
            stack.append([])
        elif character == ")":
            form = stack.pop()
            stack[-1].append(form)  # IndexError: more is closed than was opened
        elif character == '"' or text.startswith('#"', at - 1):
            at += character == "#"
            word, at = _string(text, at, raw=character == "#")
            stack[-1].append(word)
        elif not character.isspace():
            start = at - 1
            while at < len(text) and text[at] not in '()"' and not text[at].isspace():
                at += 1
            stack[-1].append(text[start:at])
    (forms,) = stack
    return forms


def _string(text: str, at: int, *, raw: bool) -> tuple[str, int]:
    found = ""
    while text[at] != '"':
        if text[at] == "\\" and not raw:
            at += 1
        found += text[at]
        at += 1
    return found, at + 1


def decides(text: str, operation: str, path: str) -> bool:
    """What the profile says to an operation on an ordinary file, as Seatbelt would: the last rule that fits counts."""
    verdict = False
    for form in parse(text)[2:]:
        assert isinstance(form, list)
        action, *rest = form
        operations = [word for word in rest if isinstance(word, str)]
        filters = [word for word in rest if isinstance(word, list)]
        fits = any(word == operation or (word[-1] == "*" and operation.startswith(word[:-1])) for word in operations)
        if fits and (not filters or any(_matches(one, path) for one in filters)):
            verdict = action == "allow"
    return verdict


def _matches(one: list[Form], path: str) -> bool:
    match one:
        case ["literal", str(name)]:
            return path == name
        case ["subpath", str(name)]:
            return name == "/" or path == name or path.startswith(name + "/")
        case ["require-all", *conditions]:
            return all(isinstance(each, list) and _matches(each, path) for each in conditions)
        case ["vnode-type", kind]:
            return kind == "REGULAR-FILE"
        case ["target" | "global-name" | "regex" | "local" | "remote", *_]:
            return False
        case _:
            raise ValueError(one)
