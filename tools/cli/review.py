"""A skill as people read it before they approve it: what it runs, what it wants, its files, and what has changed.

All of it may have been written by an agent: it is escaped, and bounded.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from omac.domain.credentials.credential import Credential
from omac.domain.directories.skill_plan import drift, unmet
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted, shown_size
from omac.domain.skills.bundle import considered
from omac.domain.skills.meta import Config, FoundSkill, Secret, in_variables
from omac.domain.skills.registration import Code
from omac.services.ports import SkillFolders
from omac.services.skills.resolution import Candidate, every, find
from omac.tools.cli.approve import granted, recorded, show_interpreters
from omac.tools.cli.install_script import install_script
from omac.tools.compose.approved_copies import FileEntry, FrozenFiles, LiveFiles, approved_copy, sha256_of
from omac.tools.compose.command_context import opened
from omac.tools.compose.registered_skills import Registry, Standing, digest_now
from omac.tools.compose.scope_options import Where, at_once, for_repository, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.differences import text_of, unified
from omac.tools.terminal.render import print_folded, print_line

FILES_SHOWN = 200
FILE_BYTES_MAX = 256 * 1024
LINES_SHOWN = 5_000  # of a whole difference


class Review(NamedTuple):
    """A skill as it is now, and what lets it run, by the `registry`."""

    candidate: Candidate
    standing: Standing
    registry: Registry

    @property
    def skill(self) -> FoundSkill:
        return self.candidate.skill

    @property
    def approved(self) -> Code | None:
        """The code that stands for it, else the one that was approved last."""
        return self.standing.approved

    @property
    def given(self) -> Credential:
        return self.standing.given

    @property
    def approved_at(self) -> int:
        """The time of its last approval, in ns, UTC; 0 for never."""
        entries = (self.standing.known, self.standing.shared)
        known = [entry for entry in entries if entry and entry.state.approved == self.approved]
        return next((times.approved for times in self.registry.times(known[:1])), 0)

    @property
    def state(self) -> str:
        """The state in a word or two: approved, changed, not approved, broken, or guidance for a skill without a
        sidecar."""
        if self.skill.problem is not None:
            return "broken"
        if self.skill.sidecar is None:
            return "guidance"
        if self.standing.is_current:
            return "approved"
        is_change = self.approved is not None and self.approved.digest and not self.standing.obstacle
        return "changed" if is_change else "not approved"

    def drift(self, folders: SkillFolders) -> tuple[str, str]:
        """The hashes of what was approved and of what is there, of the kind that `--hash` of a fix has."""
        assert self.approved is not None, "its callers ask before"
        digest = digest_now(folders, self.skill.source)
        return drift(self.approved, msgspec.structs.replace(self.skill.code, digest=digest))

    def missing(self, environment: Mapping[str, str]) -> list[str]:
        """The names of the values that it waits for."""
        return list(unmet(self.skill.sidecar, self.given, environment)) if self.skill.sidecar else []


def review(skill: str, where: Where, journal: str | None, environment: Mapping[str, str], command: str) -> Review:
    """Find the skill that a command means. Raises Refusal: skill-not-found, skill-ambiguous, skill-invalid."""
    folders = DiskSkillFolders(environment)
    search = search_of(where, folders)
    registry = Registry.read(environment, journal)
    try:
        candidate = at_once(find(folders, search, skill, command))
    except Refusal as refusal:
        if refusal.reason != "skill-without-sidecar":
            raise
        there = at_once(every(folders, search, guidance=True))
        candidate = next(candidate for candidate in there if candidate.skill.name == skill)
    candidate = for_repository(candidate, where, f"{command} {quoted(skill)}")
    return review_of(candidate, registry, folders)


def review_of(candidate: Candidate, registry: Registry, folders: SkillFolders) -> Review:
    """Return what is known of a skill that was found."""
    return Review(candidate, registry.standing(candidate, folders), registry)


def frozen(reviewed: Review, journal: str | None, environment: Mapping[str, str]) -> tuple[Code, FrozenFiles]:
    """Copy a skill as it is now, so that what is shown and what is approved are the same; nothing is recorded. Raises
    Refusal: it cannot be copied, or changed meanwhile."""
    with opened(environment, journal) as everything:
        code, path = recorded(everything, lambda: everything.registering.preview(reviewed.candidate))
    return code, FrozenFiles(path, reviewed.skill.source)


def files_of(files: LiveFiles) -> dict[str, FileEntry]:
    """Return what is in a folder by relpath, in reading order. Raises Refusal (skill-invalid)."""
    try:
        entries = files.entries()
    except OSError as error:
        fix = getattr(error, "fix", ())
        raise Refusal("skill-invalid", f"{error.filename or files.path} {error.strerror}", fix=fix) from None
    return {relpath: entries[relpath] for relpath in _reading_order(entries)}


def _reading_order(relpaths: Iterable[str]) -> list[str]:
    """Return them with the skill's own code first: thousands of files of `node_modules` or `.venv` would bury it."""
    return sorted(relpaths, key=lambda relpath: (not considered(relpath), relpath))


def show_purpose(reviewed: Review, environment: Mapping[str, str], code: Code | None = None) -> None:
    """Print what it is for, what it runs and what it wants. Of a skill that changed, the programs that run it are those
    that were approved: they are called so unless `code`, which it has now, is run by the same."""
    skill = reviewed.skill
    guide, sidecar = skill.guide, skill.sidecar
    print_folded(f"{skill.name} in {skill.source}", 4)
    description = (guide.description if guide else "") or (skill.meta.description if skill.meta else "")
    if description:
        print_folded(f"  it says: {description}", 4)
    if sidecar is None:
        print_line("  it has no sidecar: agents read its SKILL.md, and omac runs nothing of it")
        return
    print_folded(f"  it runs as you: {shlex.join(sidecar.command)}", 4)
    if reviewed.approved is not None:
        same = code.interpreters == reviewed.approved.interpreters if code else reviewed.state != "changed"
        show_interpreters(reviewed.approved, "by" if same else "approved before, by")
    print_line(f"  agents call it by $OMAC_{in_variables(sidecar.mount)}_BASE")
    if script := install_script(skill, environment):
        says = f"  its install script is {script.path}, which omac does not run"
        print_folded(f"{says}: read it, and run it before you approve the files", 4)
    for field in sidecar.fields:
        print_folded(f"  {_wants(field, reviewed.given, environment)}", 4)
    if variables := granted(sidecar):
        print_folded(f"  it may read these variables of yours: {', '.join(variables)}", 4)


def show_files(files: Mapping[str, FileEntry]) -> None:
    """Print each file with its size."""
    print_line(f"  {counted(len(files), 'file')}:")
    for relpath, entry in list(files.items())[:FILES_SHOWN]:
        suffix = f" -> {entry.target}" if entry.target is not None else " (executable)" if entry.executable else ""
        print_folded(f"  {shown_size(entry.size):>9}  {relpath}{suffix}", 13)
    if len(files) > FILES_SHOWN:
        print_line(f"  {len(files) - FILES_SHOWN} more")


def differences(
    reviewed: Review, files: LiveFiles, environment: Mapping[str, str], journal: str | None
) -> Iterator[str]:
    """Yield the lines of a difference between the approved copy and `files`. Raises Refusal (skill-changed)."""
    assert reviewed.approved is not None, "its callers ask before"
    copy = approved_copy(environment, journal, reviewed.approved)
    before, now = files_of(copy), files_of(files)
    for relpath in _reading_order({*before, *now}):
        old, new = before.get(relpath), now.get(relpath)
        if old is None or new is None or old.target is not None or new.target is not None:
            yield from _whole(relpath, old, new, files)
            continue
        if old.executable != new.executable:
            yield f"{relpath}: {'is now' if new.executable else 'is no longer'} executable"
        contents = copy.content_of(relpath, FILE_BYTES_MAX), files.content_of(relpath, FILE_BYTES_MAX)
        if None in contents:
            if old.size != new.size or sha256_of(copy.path, relpath) != sha256_of(files.path, relpath):
                yield f"{relpath}: changed, {shown_size(old.size)} before, {shown_size(new.size)} now"
        elif contents[0] != contents[1]:
            yield from _changed(relpath, contents[0] or b"", contents[1] or b"")


def _whole(relpath: str, old: FileEntry | None, new: FileEntry | None, files: LiveFiles) -> Iterator[str]:
    """Yield what became of a file or link that is new or gone, or of a link."""
    if old is not None and new is not None:
        if old.target != new.target:
            yield f"{relpath}: {_kind(old)} before, {_kind(new)} now"
    elif new is None:
        yield f"{relpath}: removed"
    else:
        yield f"{relpath}: new, {_kind(new)}"
        content = None if new.target is not None else files.content_of(relpath, FILE_BYTES_MAX)
        lines = None if content is None else text_of(content)
        if lines is not None:
            yield from unified(relpath, [], lines)


def _kind(entry: FileEntry) -> str:
    if entry.target is not None:
        return f"a link to {entry.target}"
    return f"{'executable, ' if entry.executable else ''}{shown_size(entry.size)}"


def _changed(relpath: str, old: bytes, new: bytes) -> Iterator[str]:
    before, now = text_of(old), text_of(new)
    if before is None or now is None:
        yield f"{relpath}: a binary file changed, {shown_size(len(old))} before, {shown_size(len(new))} now"
    else:
        yield from unified(relpath, before, now)


def _wants(field: Secret | Config, values: Credential, environment: Mapping[str, str]) -> str:
    kind = "secret" if isinstance(field, Secret) else f"setting, {field.type}"
    has = field.name in (values.secrets if isinstance(field, Secret) else values.config)
    if has:
        state = "set"
    elif isinstance(field, Config) and field.default is not None:
        state = f"not set: {field.default}"
    elif environment.get(field.default_from_env or ""):
        state = f"not set: taken from ${field.default_from_env}"
    else:
        state = "required, not set" if field.required else "optional, not set"
    return f"{field.name} ({kind}; {state}){': ' + field.description if field.description else ''}"
