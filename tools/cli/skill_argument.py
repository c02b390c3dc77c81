"""The one skill that a command about values means, and the values it declares."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import trio

from omac.domain.credentials.credential import Credential
from omac.domain.directories import skill_plan
from omac.domain.harness.table import DEFAULT_HARNESS
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills.meta import Config, FoundSkill, Secret, SidecarMeta
from omac.domain.skills.registration import Code
from omac.domain.skills.scope import SkillScope
from omac.domain.skills.values import ValueRefused, decoded
from omac.services.credentials.values import Values
from omac.services.skills.resolution import Candidate, find
from omac.tools.compose.command_context import Opened, opened
from omac.tools.compose.registered_skills import Registry, Standing, digest_now
from omac.tools.compose.scope_options import Where, for_repository, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.invocation import current
from omac.tools.terminal.render import report, report_fix

Declared = TypeVar("Declared", Secret, Config)

BY_RECORD = ("skill-not-found", "skill-invalid", "skill-without-sidecar")  # what a folder on disk is needed for


class SkillArgument(NamedTuple):
    """The arguments of the command line that name a skill, as typed."""

    skill: str
    where: Where
    journal: str | None = None


class OpenedSkill(NamedTuple):
    """A skill with a sidecar, and all that is open to work on it."""

    opened: Opened
    candidate: Candidate
    sidecar: SidecarMeta
    where: Where
    journal: str | None

    @property
    def skill(self) -> FoundSkill:
        return self.candidate.skill

    @property
    def name(self) -> str:
        return self.skill.name

    @property
    def place(self) -> SkillScope:
        return self.candidate.place

    @property
    def is_registered(self) -> bool:
        """Return whether a registration of it is recorded here."""
        return self.opened.registering.known(self.candidate).status != "unknown"

    def credential(self) -> Credential:
        """Return the values given to the skill here."""
        return self.opened.credentials.values_of(self.place.scope, self.name, self.skill.base)

    def effective(self) -> Credential:
        """Return the values that count as given to the skill: those of the repository too, where its approval holds for
        these files."""
        return self._standing().given

    def give(self, values: Values) -> str:
        """Give it values, report what failed besides, and return the store that has the secrets ("" for none). Raises
        Refusal; then nothing counts as given."""
        before = self.opened.credentials.values_of(self.place.scope, self.name)
        result = trio.run(self.opened.registering.give, self.candidate, values)
        report_besides(self.candidate, values, before, result.problems)
        return result.store

    def command(self, group: str, *words: str) -> str:
        """A command about it, ready to be pasted."""
        return " ".join(["omac", group, words[0], quoted(self.name), *words[1:], self.place.flags])

    def approve_command(self) -> str | None:
        """The command that approves its code, if no approval holds for it, be it by repository."""
        standing = self._standing()
        if standing.is_current or standing.obstacle:
            return None
        code = self.candidate.skill.code
        now = Code(code.source, code.bundle_hash, digest_now(self.opened.folders, code.source))
        return skill_plan.approve_command(self.skill, self.place, now)

    def secret(self, name: str) -> Secret:
        """The secret of that name. Raises Refusal (value-refused) that lists what there is."""
        return self._declared(name, "secret", self.sidecar.secrets)

    def config(self, name: str) -> Config:
        """The setting of that name. Raises Refusal (value-refused) that lists what there is."""
        return self._declared(name, "setting", self.sidecar.config)

    def refused(self, error: ValueRefused, *fix: str) -> Refusal:
        """A value that was refused, as the person hears of it."""
        return Refusal("value-refused", f"{self.name}: {error}", fix=fix, skill=self.name)

    def _standing(self) -> Standing:
        registry = Registry.read(current().environment, self.journal)
        return registry.standing(self.candidate, self.opened.folders)

    def _declared(self, name: str, kind: str, declared: Collection[Declared]) -> Declared:
        for field in declared:
            if field.name == name:
                return field
        names = ", ".join(field.name for field in declared) or "none"
        message = f"{self.name} in {self.skill.source} declares no {kind} {name!r}; it declares: {names}"
        fix = [self.command("config", "show")]
        if any(field.name == name for field in self.sidecar.fields):
            fix = [self.command("config", "set", name) if kind == "secret" else self.command("secrets", "set", name)]
        raise Refusal("value-refused", message, fix=fix, skill=self.name)


@contextmanager
def opened_skill(request: SkillArgument, command: str, words: Collection[str]) -> Iterator[OpenedSkill]:
    """Find it, then open everything; `command` and `words` are what fixes say again. Raises Refusal."""
    environment = current().environment
    folders = DiskSkillFolders(environment)
    search = search_of(request.where, folders)
    again = " ".join(map(quoted, words))
    try:
        candidate = trio.run(find, folders, search, request.skill, command, again)
    except Refusal as refusal:
        if refusal.reason not in BY_RECORD or not command.endswith(" unset"):
            raise
        skill_scope = SkillScope(
            "" if request.where.shared else search.workdir, request.where.harness or DEFAULT_HARNESS.name
        )
        forget = f"omac deregister {quoted(request.skill)} {skill_scope.where} --purge-secrets --purge-fields"
        fix = (*refusal.fix, f"{forget}  # needs no folder")
        raise Refusal(refusal.reason, refusal.message, fix=fix, skill=request.skill) from None
    candidate = for_repository(candidate, request.where, f"{command} {quoted(request.skill)} {again}".rstrip())
    assert candidate.skill.sidecar is not None, "find returns no other"
    with opened(environment, request.journal) as everything:
        yield OpenedSkill(everything, candidate, candidate.skill.sidecar, request.where, request.journal)


def report_besides(candidate: Candidate, values: Values, before: Credential, problems: Sequence[Refusal]) -> None:
    """Report the skills of the same name that lost a value to this one, and what failed after these values were
    given."""
    names, base = (*values.secrets, *values.config), candidate.skill.base
    for name in names:
        owner = before.bases.get(name, base)
        if owner != base and (name in before.secrets or name in before.config):
            skill = f"{candidate.skill.name} in .{owner}/skills"
            report(f"{name} is no longer set for {skill}: a name has one value")
    for message, fix in dict.fromkeys((problem.message, problem.fix) for problem in problems):  # of a store, maybe
        report(f"{', '.join(names)}: {message}")
        report_fix(fix)


def at_terminal() -> bool:
    """Return whether the standard input is a terminal. Raises Refusal (misuse) where it is closed."""
    stdin = current().stdin
    if stdin is None:
        raise Refusal("misuse", "the standard input is closed, so no value can be read from it")
    return stdin.isatty()


def text_of(content: bytes) -> str | None:
    """Return the text of a value that was read: UTF-8, without the newline that ends it. None for other bytes."""
    text = decoded(content)
    return text.removesuffix("\n").removesuffix("\r") if text and text.endswith("\n") else text
