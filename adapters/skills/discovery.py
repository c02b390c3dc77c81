"""Finding skills: in the skills folders of a project, or in those that all projects of a user share."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from omac.adapters.skills.allowance import Allowance
from omac.adapters.skills.canonical import OutsideRootsError, canonical_folder
from omac.adapters.skills.guide_file import read_guide
from omac.adapters.skills.paths import is_utf8, open_folder
from omac.adapters.skills.worker_pool import go_on
from omac.adapters.skills.yaml_file import YamlFileError, read_yaml_bytes
from omac.domain.harness.harness import SHARED_BASE
from omac.domain.kernel.exhaustion import raise_exhaustion
from omac.domain.kernel.paths import below
from omac.domain.kernel.terminal_escaping import printable
from omac.domain.skills.contract import parse_meta
from omac.domain.skills.meta import SKILL_NAME, FoundSkill, Guide, Meta, MetaError, ScopeKind

META_FILE = "omac.yaml"
SKILLS_PER_BASE_MAX = 256
ENTRIES_PER_BASE_MAX = 10_000

CodeHash = Callable[[str, Mapping[str, bytes]], str]  # `code_hash_of`, or what remembers it
ScalarTexts = Callable[[bytes, str], list[str | None] | None]


class SkillsRoot(NamedTuple):
    """A folder of skills: `path`, which errors call `label`, and the folders that nothing in it may lead out of.

    Every agent sees the skills of the folders `shared` too. One that is here as well, since either folder or either
    skill is a link, is theirs: it is one skill, which is approved once.
    """

    path: str
    base: str
    label: str
    within: tuple[str, ...]
    scope: ScopeKind
    shared: tuple[str, ...]

    def is_elsewhere(self, name: str, source: str) -> bool:
        """Return whether the skill `name`, with the canonical folder `source`, belongs to a shared folder."""
        names = {name, os.path.basename(source)}
        return any(os.path.realpath(os.path.join(folder, part)) == source for folder in self.shared for part in names)


def workdir_roots(workdir: str, bases: Sequence[str]) -> Iterator[SkillsRoot]:
    """The skills folders of a project, whose canonical path is `workdir`."""
    for base in bases:
        shared = () if base == SHARED_BASE else (os.path.join(workdir, f".{SHARED_BASE}", "skills"),)
        path, label = os.path.join(workdir, f".{base}", "skills"), f".{base}/skills"
        yield SkillsRoot(path, base, label, (workdir,), "workdir", shared)


def global_roots(environment: Mapping[str, str], bases: Sequence[str]) -> Iterator[SkillsRoot]:
    """The skills folders of a user: `$XDG_CONFIG_HOME/<base>/skills`, `~/.config/<base>/skills`, `~/.<base>/skills`.

    Only those that are there, each real folder once; none without HOME.
    """
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        return
    config = environment.get("XDG_CONFIG_HOME", "")
    within = tuple(os.path.realpath(path) for path in (home, config) if path.startswith("/"))

    def paths(base: str) -> tuple[str, ...]:
        above = (os.path.join(config, base), os.path.join(home, ".config", base), os.path.join(home, f".{base}"))
        there = (os.path.join(path, "skills") for path in above)
        return tuple(path for path in there if path.startswith("/") and os.path.lexists(path))

    seen: set[str] = set()
    for base in bases:
        shared = () if base == SHARED_BASE else paths(SHARED_BASE)
        elsewhere = {os.path.realpath(path) for path in shared}
        for path in paths(base):
            real = os.path.realpath(path)
            if real not in seen and real not in elsewhere:
                seen.add(real)
                label = f"~{path[len(home.rstrip('/')) :]}" if below(path, home) else path
                yield SkillsRoot(path, base, label, within, "global", shared)


def discover(roots: Iterator[SkillsRoot], code_hash: CodeHash, *, guidance: bool) -> list[FoundSkill]:
    """Return the skills in these folders; the first of a name wins. With `guidance`, skills without a sidecar follow,
    if no other has their name."""
    allowance = Allowance()
    skills: dict[str, FoundSkill] = {}
    guides: dict[str, FoundSkill] = {}
    folded: dict[str, FoundSkill] = {}
    for root in roots:
        for skill in _SkillsFolder(root, code_hash, guidance, allowance).skills(skills):
            if skill.is_guidance:
                guides.setdefault(skill.name, skill)
            elif skill.name not in skills:
                skills[skill.name] = _unlike(skill, folded.setdefault(skill.name.casefold(), skill))
    for name, skill in guides.items():
        if name not in skills:
            skills[name] = _unlike(skill, folded.setdefault(name.casefold(), skill))
    return list(skills.values())


def _unlike(skill: FoundSkill, first: FoundSkill) -> FoundSkill:
    """`skill`, unless only case tells its name from that of the `first`: keychains and file systems may not see it."""
    if skill is first or skill.problem is not None:
        return skill
    problem = (
        f"{printable(skill.source)}: the name {skill.name} differs only in case from {first.name}, "
        f"which {printable(first.source)} has; rename one of the two"
    )
    return msgspec.structs.replace(skill, meta=None, bundle_hash="", problem=problem)


class _SkillsFolder:
    """One folder of skills."""

    def __init__(self, root: SkillsRoot, code_hash: CodeHash, guidance: bool, allowance: Allowance) -> None:
        self._root = root
        self._code_hash = code_hash
        self._guidance = guidance
        self._allowance = allowance
        self._within = root.within

    def skills(self, taken: Mapping[str, FoundSkill]) -> Iterator[FoundSkill]:
        """Yield the skills of the folder, in the order of folder names; a skill whose name is `taken` is not read to
        the end."""
        label, shown = self._root.label, self._root.path
        try:
            path = canonical_folder(shown, self._within)
        except (OutsideRootsError, OSError) as error:
            problem = self._problem(shown, error)
            if problem or os.path.lexists(shown):
                yield self._broken(label, shown, problem or "is no folder; make it a folder of skills")
            return
        if self._root.scope == "global":
            self._within = (self._within[0], path)
        try:
            names = _entry_names(path)
        except OSError as error:
            raise_exhaustion(error)
            yield self._broken(label, shown, f"cannot be read ({error.strerror}); make it a folder of skills")
            return
        # Guidance has a bound of its own: it must not push a skill with a sidecar out of sight.
        seen = {True: 0, False: 0}
        for name in sorted(names):
            go_on()
            skill = self._skill(path, name, taken)
            if skill is None:
                continue
            seen[skill.is_guidance] += 1
            if seen[skill.is_guidance] <= SKILLS_PER_BASE_MAX:
                yield skill
            elif not skill.is_guidance:
                problem = f"holds more than {SKILLS_PER_BASE_MAX} skills, so the rest was not read; remove some"
                yield self._broken(label, shown, problem)
                return

    def _skill(self, skills_path: str, name: str, taken: Mapping[str, FoundSkill]) -> FoundSkill | None:
        """The skill in the folder `name`; None if there is none, or no sidecar in it and guidance is not wanted."""
        path = os.path.join(skills_path, name)
        try:
            source = canonical_folder(path, self._within) if os.path.islink(path) else path
            if self._root.is_elsewhere(name, source):
                return None
            with open_folder(source) as folder:
                try:
                    os.stat(META_FILE, dir_fd=folder, follow_symlinks=False)
                except FileNotFoundError:
                    return self._guide_only(folder, name, source, None)
                if not name.isprintable() or not is_utf8(source):
                    return self._broken(name, path, "has control characters or no UTF-8 in its path; rename the folder")
                return self._read(folder, name, source, taken)
        except (OutsideRootsError, OSError) as error:
            problem = self._problem(path, error)
            return self._broken(name, path, problem) if problem else None

    def _problem(self, path: str, error: OutsideRootsError | OSError) -> str:
        """Return why nothing in a folder can be read; empty where there is no folder at all."""
        if isinstance(error, OutsideRootsError):
            return f"leads out of {self._where()}; put the folder itself there"
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            is_dangling = os.path.islink(path) and not os.path.exists(path)
            return "is a link that leads nowhere; remove it" if is_dangling else ""
        raise_exhaustion(error)
        return f"cannot be read ({error.strerror}); check links and rights"

    def _read(self, folder: int, name: str, source: str, taken: Mapping[str, FoundSkill]) -> FoundSkill | None:
        shown = printable(os.path.join(source, META_FILE))
        try:
            content = read_yaml_bytes(META_FILE, folder, shown)
            document = self._allowance.metas.parse(content, shown)
        except YamlFileError as error:
            raise_exhaustion(error)
            return self._invalid(name, source, str(error))
        name = _declared_name(document) or name
        try:
            meta = parse_meta(_with_words(document, content, self._allowance.metas.scalar_texts))
        except MetaError as error:
            line = self._allowance.metas.line_of(content, error.field)
            return self._invalid(name, source, str(YamlFileError(shown, str(error), line)))
        if meta.sidecar is None:
            return self._guide_only(folder, name, source, meta)
        skill = self._skill_of(meta.name, source, meta=meta)
        if meta.name in taken:
            return skill  # another comes first: nobody will ask for the hash of this one
        try:
            if problem := self._allowance.files.problem_of(source):
                return self._invalid(meta.name, source, problem)
            # The hash covers the very bytes that `meta` was read from, whatever the file holds by now: otherwise
            # a folder that changes in between would pair one command with the hash of another.
            digest = self._code_hash(source, {META_FILE: hashlib.sha256(content).digest()})
        except OSError as error:
            raise_exhaustion(error)
            culprit = printable(str(error.filename))
            return self._invalid(
                name, source, f"{culprit} cannot be hashed ({error.strerror}); make it smaller or mend it"
            )
        guide = read_guide(folder, source, meta.name, self._allowance.guides)
        return msgspec.structs.replace(skill, bundle_hash=digest, guide=guide)

    def _guide_only(self, folder: int, name: str, source: str, meta: Meta | None) -> FoundSkill | None:
        if not self._guidance:
            return None
        name = name if meta is None else meta.name
        guide = read_guide(folder, source, name, self._allowance.guides)
        return None if guide is None else self._skill_of(name, source, meta=meta, guide=guide)

    def _where(self) -> str:
        return "the project" if self._root.scope == "workdir" else "your home directory"

    def _broken(self, name: str, source: str, complaint: str) -> FoundSkill:
        return self._invalid(name, source, f"{printable(source)} {complaint}")

    def _invalid(self, name: str, source: str, problem: str) -> FoundSkill:
        return msgspec.structs.replace(self._skill_of(name, source), problem=problem)

    def _skill_of(self, name: str, source: str, meta: Meta | None = None, guide: Guide | None = None) -> FoundSkill:
        source = source if is_utf8(source) else printable(source)  # it goes into JSON
        skills_dir = self._root.path if is_utf8(self._root.path) else printable(self._root.path)
        return FoundSkill(
            printable(name), self._root.base, skills_dir, source, meta=meta, scope=self._root.scope, guide=guide
        )


def _declared_name(document: object) -> str | None:
    name = document.get("name") if isinstance(document, dict) else None
    return name if isinstance(name, str) and SKILL_NAME.fullmatch(name) else None


def _with_words(document: object, content: bytes, scalar_texts: ScalarTexts) -> object:
    """The document with numbers and truth values in `sidecar.command` as their text: a command is made of words."""
    if not (isinstance(document, dict) and isinstance(sidecar := document.get("sidecar"), dict)):
        return document
    command = sidecar.get("command")
    if not isinstance(command, list) or all(isinstance(word, str) for word in command):
        return document
    texts = scalar_texts(content, "sidecar.command") or []
    if len(texts) != len(command):  # then the contract refuses what is no text
        return document
    words = [text if text is not None else word for word, text in zip(command, texts, strict=True)]
    return {**document, "sidecar": {**sidecar, "command": words}}


def _entry_names(path: str) -> list[str]:
    """Names in the folder that can be skill folders. Raises OSError, also beyond ENTRIES_PER_BASE_MAX entries."""
    names: list[str] = []
    with open_folder(path) as folder, os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count == ENTRIES_PER_BASE_MAX:
                raise OSError(errno.EFBIG, f"more than {ENTRIES_PER_BASE_MAX} entries", path)
            is_folder = entry.is_symlink() or entry.is_dir(follow_symlinks=False)
            if is_folder and not entry.name.startswith("."):  # as `skills/*/` in a shell
                names.append(entry.name)
    return names
