"""Moving: from what the omac that was written in Go left behind to a plan of what is taken over, and what is not.

Rules

1. An agent can write its files in a project: they say what to look at, and vouch for nothing. Those in the user's
   configuration folder vouch.
2. What was registered and is found is registered. It is approved if it was approved under this name, in this folder,
   with this bundle hash, and if all that the hash leaves out is as in the copy that was kept of what was approved.
3. Secrets and settings go to approved code only, and only those it declares. The secret of the project comes before
   the one of all projects; so does the setting, if a person saw it or vouches for the project's file unseen: a setting
   can send a secret elsewhere.
4. What was given, remembered or taken back here since then stays as it is.
5. Values to remember come from the user's file and keychain, never from a project.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from omac.domain.credentials import credential
from omac.domain.credentials.credential import Credential, Default
from omac.domain.directories.skill_plan import approve_command
from omac.domain.kernel import ids
from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.ids import GLOBAL
from omac.domain.kernel.refusal import quoted
from omac.domain.skills.bundle import TreeFile, considered
from omac.domain.skills.meta import Config, FoundSkill, Secret
from omac.domain.skills.registration import Code, Registration
from omac.domain.skills.scope import SkillScope
from omac.domain.skills.values import ValueRefused, check_config, check_secret

BY_AGENT = "the project's own file, which an agent can write"
SEEN_CHARS_MAX = 1_000  # of a setting that somebody can be said to have seen
NO_CODE = frozenset({".DS_Store", "Thumbs.db"})  # a desktop writes them whenever a folder is looked at

What = Literal["registration", "approval", "secret", "setting", "default"]
Verdict = Literal["take", "there", "skip"]
Project = Literal["seen", "unseen", "confirmed"]


class OldEntry(msgspec.Struct, frozen=True):
    """A line of a registry. `source` is where its folder leads now, `names` the secrets it declared."""

    name: str
    source: str
    bundle_hash: str
    names: tuple[str, ...]
    file: str
    shared: bool


class OldApproval(msgspec.Struct, frozen=True):
    """An approval of the code with this hash, in the folder `path`, which leads to `source` now.

    `folder` is that path as it was then, if only the links that lead to its project are followed.
    """

    name: str
    path: str
    folder: str
    source: str
    bundle_hash: str
    file: str

    def is_for(self, skill: FoundSkill) -> bool:
        """Return whether the approval is for this skill: an agent may put links into its project that lead from there
        to another."""
        same = skill.source == self.folder or skill.skills_dir in (_parent(self.folder), _parent(self.path))
        return same and (self.name, self.source) == (skill.name, skill.source)


class OldValues(msgspec.Struct, frozen=True):
    """A file of settings: by skill the values given, and those remembered.

    `project` is set for that of the project: whether a person sees its settings before they are taken over.
    """

    file: str = ""
    given: dict[str, dict[str, str]] = {}
    remembered: dict[str, dict[str, str]] = {}
    project: Project | None = None


class Old(msgspec.Struct, frozen=True):
    """The old omac's data, as far as it was read. `notes` report what could not be read, each beginning with the
    file."""

    entries: tuple[OldEntry, ...] = ()
    approvals: tuple[OldApproval, ...] = ()
    project: OldValues = OldValues()
    user: OldValues = OldValues()
    notes: tuple[str, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """A skill folder as it was read in one go: its hashes, and by relpath all that the bundle hash leaves out."""

    bundle_hash: str
    digest: str
    loose: dict[str, bytes]


class FoundHere(msgspec.Struct, frozen=True):
    """A skill that is found, and what this host knows of it."""

    place: SkillScope
    skill: FoundSkill
    registration: Registration = Registration()
    given: Credential = Credential()

    @property
    def fields(self) -> dict[str, Secret | Config]:
        """The values that it declares, by name."""
        return {field.name: field for field in self.skill.sidecar.fields} if self.skill.sidecar else {}

    @property
    def is_approved(self) -> bool:
        """Return whether this very code may run already."""
        return self.registration.may_run(self.skill.code, "") is not None


class KeychainSecret(msgspec.Struct, frozen=True):
    """A secret that a keychain holds under `service`."""

    service: str
    value: Hidden


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of the import: take a thing over, leave it because it is there, or skip it. `why` is the reason, and
    `fix` are the commands that do it by hand.

    `value` is that of a setting, or the bundle hash of an approval; a secret has none here.
    """

    what: What
    verdict: Verdict
    origin: str
    name: str = ""
    value: str | None = None
    why: str = ""
    fix: tuple[str, ...] = ()


class ImportGroup(msgspec.Struct, frozen=True):
    """The steps for one skill; `scope` is "workdir", "global", "defaults" or, for a skill that is not there,
    "missing"."""

    skill: str
    scope: str
    source: str
    steps: tuple[Step, ...]


def loose_of(files: Mapping[str, TreeFile], links: Mapping[str, str]) -> dict[str, bytes]:
    """Return, by relpath, the content that a bundle hash leaves out of a tree and a copy of the tree would hold."""
    contents = {
        relpath: file.content
        for relpath, file in files.items()
        if not considered(relpath) and relpath.rpartition("/")[2] not in NO_CODE
    }
    return contents | {relpath: b"link " + target.encode(errors="surrogateescape") for relpath, target in links.items()}


def keychain_services(skill_scope: SkillScope, literal: str, skill: str) -> list[str]:
    """Return the services under which the old omac kept secrets of a skill: the first that has one counts. `literal` is
    the workdir as it was typed."""
    scopes = [skill_scope.scope, ids.workdir_id(literal)] if skill_scope.workdir else []
    return list(dict.fromkeys(credential.service(scope, skill) for scope in (*scopes, GLOBAL)))


def matching(old: Old, skill: FoundSkill) -> list[OldEntry]:
    """Return the registries' entries for a skill that is found."""
    return [entry for entry in old.entries if (entry.name, entry.source) == (skill.name, skill.source)]


def approval_for(old: Old, present: FoundHere) -> OldApproval | None:
    """The approval that may hold for what is found; whether it does depends on what its hash leaves out."""
    skill, hashed = present.skill, _hashed(present.skill.bundle_hash)
    return next(
        (approval for approval in old.approvals if approval.bundle_hash == hashed and approval.is_for(skill)), None
    )


def judge_registration(present: FoundHere, entry: OldEntry) -> Step:
    """Return the step for a registration (rule 2, its first half)."""
    if present.skill.problem is not None:
        return Step("registration", "skip", entry.file, why=present.skill.problem)
    if present.skill.sidecar is None:
        return Step("registration", "skip", entry.file, why="it has no sidecar, so omac has nothing to register")
    code = present.registration.found
    known = code is not None and code.is_bundle(present.skill.code)
    return Step("registration", "there" if known else "take", entry.file)


def judge_approval(present: FoundHere, old: Old, seen: Seen | str | None, kept: Mapping[str, bytes]) -> Step:
    """Return the step for an approval (rule 2, its second half). `kept` is what the old copy has of all that the hash
    leaves out. `seen` is the folder read as a whole, or the reason why it could not be read; None where it is approved
    here already."""
    skill = present.skill
    now = Code(skill.source, seen.bundle_hash, seen.digest) if isinstance(seen, Seen) else present.registration.found
    fix = (approve_command(skill, present.place, now),)
    approval = approval_for(old, present)
    if present.is_approved:
        return Step("approval", "there", approval.file if approval else "", value=skill.bundle_hash)
    if approval is None:
        return Step("approval", "skip", "", value=skill.bundle_hash, why=_why_unapproved(present, old), fix=fix)
    if not isinstance(seen, Seen) or seen.bundle_hash != skill.bundle_hash:
        why = seen if isinstance(seen, str) else "its files changed while omac read them"
        return Step("approval", "skip", approval.file, value=skill.bundle_hash, why=why, fix=fix)
    if uncovered := [path for path, content in seen.loose.items() if kept.get(path) != content]:
        shown = ", ".join(sorted(uncovered)[:3]) + (", ..." if len(uncovered) > 3 else "")
        why = f"the old approval does not cover all of it, and no copy of what was approved has it like this: {shown}"
        return Step("approval", "skip", approval.file, value=skill.bundle_hash, why=why, fix=fix)
    return Step("approval", "take", approval.file, value=skill.bundle_hash)


def judge_secrets(
    present: FoundHere, trusted: bool, names: Collection[str], held: Mapping[str, KeychainSecret]
) -> list[Step]:
    """Return the steps for secrets, those declared now or then (rules 3 and 4). A secret that is in no keychain is left
    out, unless it is settled or the keychain was not asked."""
    steps = []
    declared = {name: field for name, field in present.fields.items() if isinstance(field, Secret)}
    for name in sorted({*names, *declared}):
        fix = (f"omac secrets set {quoted(present.skill.name)} {name} {present.place.flags}",)
        item = held.get(name)
        origin = f"keychain {item.service}" if item else "keychain"
        if settled := _settled(present, name):
            steps.append(Step("secret", settled[0], "", name, why=settled[1]))
        elif not trusted:
            why = "its code is not approved, so the keychain was not asked"
            steps.append(Step("secret", "skip", origin, name, why=why, fix=fix if name in declared else ()))
        elif item is not None and name not in declared:
            steps.append(Step("secret", "skip", origin, name, why="its omac.yaml does not declare it as a secret"))
        elif item is not None:
            problem = _secret_problem(declared[name], item.value)
            if not problem and present.place.workdir and item.service == credential.service(GLOBAL, present.skill.name):
                steps.append(Step("secret", "take", origin, name, why="it was for all projects; this one gets a copy"))
                continue
            verdict: Verdict = "skip" if problem else "take"
            steps.append(Step("secret", verdict, origin, name, why=problem, fix=fix if problem else ()))
    return steps


def judge_settings(
    present: FoundHere, trusted: bool, sources: Sequence[OldValues], unheard: OldValues | None = None
) -> list[Step]:
    """Return the steps for settings (rules 3 and 4). The first of `sources` that has a setting counts, and what is
    `unheard` does not.

    A setting that nobody saw does not count either: then the next source counts.
    """
    steps, seen = [], set()
    for name in unheard.given.get(present.skill.name, {}) if unheard else ():
        why = "all projects share this skill, and the file of one does not speak for all"
        steps.append(Step("setting", "skip", unheard.file if unheard else "", name, why=why))
    for source in sources:
        for name, text in source.given.get(present.skill.name, {}).items():
            if name not in seen:
                if source.project != "unseen":
                    seen.add(name)
                steps.append(_judge_setting(present, trusted, source, name, text))
    return steps


def _judge_setting(present: FoundHere, trusted: bool, source: OldValues, name: str, text: str) -> Step:
    file, field = source.file, present.fields.get(name)
    command, value = f"omac config set {quoted(present.skill.name)} {name}", quoted(text)
    flags = present.place.flags
    by_hand = f"{command} {flags} -- {value}" if text.startswith("-") else f"{command} {value} {flags}"
    if not isinstance(field, Config):
        return Step("setting", "skip", file, name, why="its omac.yaml does not declare it as a setting")
    try:
        value = check_config(field, text)
    except ValueRefused as refused:
        return Step("setting", "skip", file, name, why=refused.problem)
    if settled := _settled(present, name):
        return Step("setting", settled[0], file, name, value, settled[1])
    if source.project == "unseen":
        return Step("setting", "skip", file, name, value, BY_AGENT, (by_hand,))
    if not trusted:
        return Step("setting", "skip", file, name, value, "its code is not approved", (by_hand,))
    if source.project == "seen" and len(value) > SEEN_CHARS_MAX:
        return Step("setting", "skip", file, name, value, f"{BY_AGENT}; it is too long to review", (by_hand,))
    return Step("setting", "take", file, name, value, BY_AGENT if source.project else "")


def judge_defaults(
    present: FoundHere, remembered: Mapping[str, Default], values: OldValues, held: Mapping[str, KeychainSecret]
) -> list[Step]:
    """Rules 4 and 5: what is to be remembered for a skill's name, as far as it declares it."""
    steps = []
    texts = values.remembered.get(present.skill.name, {})
    for name, field in present.fields.items():
        if name in remembered and (name in texts or name in held):
            steps.append(Step("default", "there", "", name, why="a default is saved already"))
        elif isinstance(field, Secret) and name in held:
            problem = _secret_problem(field, held[name].value)
            verdict: Verdict = "skip" if problem else "take"
            steps.append(Step("default", verdict, f"keychain {held[name].service}", name, why=problem))
        elif isinstance(field, Config) and name in texts:
            try:
                steps.append(Step("default", "take", values.file, name, check_config(field, texts[name])))
            except ValueRefused as refused:
                steps.append(Step("default", "skip", values.file, name, why=refused.problem))
    return steps


def judge_absent(old: Old, present: Collection[tuple[str, str]]) -> list[ImportGroup]:
    """Return groups that skip what is absent: registrations that are not among `present` (name and folder), and a
    project's settings for skills that it does not have. All defaults in the project's file are skipped, too."""
    groups = []
    for entry in old.entries:
        if (entry.name, entry.source) not in present:
            step = Step("registration", "skip", entry.file, why="no skill of this name is in this folder now")
            groups.append(ImportGroup(entry.name, "missing", entry.source, (step,)))
    names = {name for name, _ in present}
    why = "no such skill is imported here"
    for name in old.project.given.keys() - names:
        groups.append(ImportGroup(name, "missing", "", (Step("setting", "skip", old.project.file, why=why),)))
    for name in old.project.remembered:
        unsaved = "an agent can write this file, so omac saves no defaults from it"
        groups.append(ImportGroup(name, "defaults", "", (Step("default", "skip", old.project.file, why=unsaved),)))
    return sorted(set(groups), key=lambda group: (group.skill, group.scope, group.source))


def _hashed(bundle_hash: str) -> str:
    """Return the part of a bundle hash that the old hash covers: the part before the "+"."""
    return bundle_hash.partition("+")[0]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _why_unapproved(present: FoundHere, old: Old) -> str:
    skill = present.skill
    named = [approval for approval in old.approvals if approval.name == skill.name]
    elsewhere = [approval.path for approval in named if approval.bundle_hash == _hashed(skill.bundle_hash)]
    if elsewhere:
        return f"this code was approved in another folder, {elsewhere[0]}, and another folder inherits nothing"
    if any(approval.is_for(skill) for approval in named):
        return "its code has changed since it was approved"
    return "not approved: a project's own files cannot approve a skill"


def _settled(present: FoundHere, name: str) -> tuple[Verdict, str] | None:
    if name in present.given.secrets or name in present.given.config:
        return "there", "a value is set here already"
    if name in present.given.taken:
        return "there", "its value was revoked here"
    return None


def _secret_problem(field: Secret, value: Hidden) -> str:
    try:
        check_secret(field, value.reveal())
    except ValueRefused as refused:
        return refused.problem
    return ""
