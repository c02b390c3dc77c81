"""omac register: approve a skill and give it its values, in one step. Nothing here shows the value of a secret."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import trio

from omac.domain.credentials import credential
from omac.domain.credentials.credential import Credential
from omac.domain.directories.skill_plan import drift, unmet
from omac.domain.kernel.ids import GLOBAL, RunId
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills.meta import Secret
from omac.domain.skills.registration import Code
from omac.services.credentials.values import Values
from omac.services.ports import SkillFolders
from omac.services.skills.resolution import Candidate, find
from omac.tools.cli.approve import digest_of, granted, recorded, require_digest, show_code, sidecar_of
from omac.tools.cli.install_script import install_script, show_install_script
from omac.tools.cli.skill_argument import report_besides
from omac.tools.cli.skill_notes import note_guide, note_unknown_keys
from omac.tools.cli.value_sources import CollectedValues, ValueCollection, ValueOptions, explicit_values, usable
from omac.tools.cli.vault import make_usable
from omac.tools.cli.vault_key import TypedKey
from omac.tools.compose.command_context import Opened, opened
from omac.tools.compose.repositories import repository_of
from omac.tools.compose.scope_options import Where, for_repository, search_of
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.prompts import can_ask
from omac.tools.terminal.render import print_folded, print_line, report, report_fix

COMMAND = "omac register"
NEEDS_STORE = ("given", "ask", "default")  # an offer may be left unanswered


class RegisterRequest(NamedTuple):
    skill: str
    where: Where
    options: ValueOptions
    force: bool = False
    bundle_hash: str | None = None  # or the digest of its copy
    journal: str | None = None
    json: bool = False
    remembered_for: str | None = None  # the digest of the code whose saved values count; None: any of that name
    brief: bool = False  # who asked has shown the skill already
    typed: TypedKey | None = None  # of a command that goes through several skills

    def words(self) -> str:
        """The flags that a command has to repeat to want the same values."""
        options, words = self.options, []
        for flag, source in (("--secrets-from", options.secrets_from), ("--fields-from", options.fields_from)):
            words += [f"{flag} {quoted(source)}"] if source is not None else []
        flags = {
            "--defaults": options.defaults,
            "--no-secrets": options.no_secrets,
            "--reprompt-secrets": options.reprompt_secrets,
            "--no-fields": options.no_fields,
            "--reprompt-fields": options.reprompt_fields,
        }
        return " ".join([*words, *(flag for flag, is_set in flags.items() if is_set)])

    def command(self, candidate: Candidate, *words: str) -> str:
        """The command that means the skill, ready to be pasted."""
        skill, flags = quoted(candidate.skill.name), candidate.place.flags
        return " ".join(word for word in (COMMAND, skill, flags, *words) if word)


class RegistrationResult(NamedTuple):
    """The result of a registration, for the output to people and programs."""

    candidate: Candidate
    approved: Code
    new: bool
    collected: CollectedValues
    given: Credential
    missing: dict[str, str]
    vault: str
    served: bool

    @property
    def next(self) -> list[str]:
        """The commands that bring the skill online, where no server runs that would notice it."""
        directory = quoted(self.candidate.place.workdir or ".")
        return [] if self.served else [f"omac serve --no-inner --workdir {directory}", f"omac activate {directory}"]


def run(request: RegisterRequest, environment: Mapping[str, str]) -> int:
    """Register a skill. Raises Refusal; then it was not approved."""
    request.options.require_sense()
    folders = DiskSkillFolders(environment)
    search = search_of(request.where, folders)
    repeated = " ".join(filter(None, (request.words(), "--repository" if request.where.repository else "")))
    candidate = trio.run(find, folders, search, request.skill, COMMAND, repeated, request.bundle_hash)
    candidate = for_repository(candidate, request.where, f"{COMMAND} {quoted(request.skill)}")
    digest = require_digest(folders, candidate, request.bundle_hash, request.command(candidate, request.words()))
    explicit = explicit_values(sidecar_of(candidate), request.options, environment)
    with opened(environment, request.journal) as everything:
        before = everything.registering.known(candidate).approved
        if not request.force:
            digest = _require_unchanged(request, candidate, before, folders) or digest
        collected = _collect(request, candidate, explicit, everything, environment)
        values, adopted = collected.values, collected.adopted
        shared = everything.credentials.values_of(candidate.place.scope, candidate.skill.name)
        problems = recorded(everything, lambda: everything.registering.register(candidate, values, adopted, digest))
        approved = everything.registering.known(candidate).approved
        assert approved is not None, "it has just been approved"
        stored = _stored(candidate, everything)
        missing = unmet(sidecar_of(candidate), stored, environment)
        served = everything.state.is_alive(RunId("current"))
        vault = everything.stores.vault.path
    done = RegistrationResult(candidate, approved, approved != before, collected, stored, missing, vault, served)
    if request.json:
        print_json(_as_json(done, environment))
    else:
        _show(request, done, environment)
    report_besides(candidate, values, shared, problems)
    note_guide(candidate.skill)
    note_unknown_keys(candidate.skill)
    return 0


def _require_unchanged(
    request: RegisterRequest, candidate: Candidate, approved: Code | None, folders: SkillFolders
) -> str | None:
    """The digest of the approved copy, which the skill still has; None if there is no copy. Raises Refusal."""
    skill = candidate.skill
    if approved is None:
        return None
    digest = digest_of(folders, skill)
    if approved.bundle_hash != skill.bundle_hash:
        difference = "is not the code that was approved"
    elif approved.digest not in ("", digest):
        difference = "has other files than when it was approved, in folders like dist"
    else:
        return approved.digest or None
    was, present = drift(approved, Code(skill.source, skill.bundle_hash, digest))
    message = f"{skill.name} in {skill.source} {difference}: approved {was}, found {present}; nothing was recorded"
    compare = f"omac diff {quoted(skill.name)} {candidate.place.flags}"
    fix = [compare, request.command(candidate, request.words(), "--force", "--hash", digest)]
    raise Refusal("skill-changed", message, fix=fix, skill=skill.name)


def _collect(
    request: RegisterRequest, candidate: Candidate, explicit: Values, everything: Opened, environment: Mapping[str, str]
) -> CollectedValues:
    """All values, checked, with their stores found open. Raises Refusal."""
    skill, sidecar, stored = candidate.skill, sidecar_of(candidate), _stored(candidate, everything)
    asks = not request.options.no_input and can_ask()
    collection = ValueCollection(sidecar, request.options, environment, explicit, stored, asks)
    remembered = _remembered(request, candidate, collection, everything)
    sources = collection.sources(remembered)
    if missing := [name for name, source in sources.items() if source == "missing"]:
        raise _missing(request, candidate, missing, everything)
    secrets = {secret.name for secret in sidecar.secrets}
    needed = [name for name in secrets if sources[name] in NEEDS_STORE]
    _require_store(candidate, needed, everything, asks, request.typed)
    if asks and {"ask", "offer"} & set(sources.values()):
        report(f"{skill.name} in {skill.source} needs values; nothing is recorded until all are entered")
    collected = collection.collect(remembered)
    if not needed:
        _require_store(candidate, list(collected.values.secrets), everything, asks, request.typed)
    return collected


def _stored(candidate: Candidate, everything: Opened) -> Credential:
    """The values that the skill gets already: its own, over those of a repository that approved exactly its files.
    Raises Refusal."""
    place, skill = candidate.place, candidate.skill
    own = everything.credentials.values_of(place.scope, skill.name, skill.base)
    repository = repository_of(place.workdir) if place.workdir and not place.repository else None
    if repository is None:
        return own
    shared = Candidate(msgspec.structs.replace(place, repository=repository), skill)
    code = Code(skill.source, skill.bundle_hash, digest_of(everything.folders, skill))
    if everything.registering.known(shared).covers(code) is None:
        return own
    return own.over(everything.credentials.values_of(repository.scope, skill.name, skill.base))


def _remembered(
    request: RegisterRequest, candidate: Candidate, collection: ValueCollection, everything: Opened
) -> Values:
    """The defaults that are to be adopted silently; what all projects share has none."""
    skill = candidate.skill
    if not request.options.defaults or candidate.place.scope == GLOBAL:
        return Values()
    unknown = collection.sources(Values())
    wanted = [name for name, source in unknown.items() if source not in ("given", "keep")]
    defaults = everything.credentials.defaults(skill.name)
    stores = {default.secret.store for name, default in defaults.items() if name in wanted and default.secret}
    if collection.can_ask:
        make_usable(everything.stores, stores, typed=request.typed)
    code = request.remembered_for
    try:
        saved = recorded(everything, lambda: everything.credentials.remembered(skill.name, wanted, code))
    except Refusal as refusal:
        asking = request._replace(options=request.options._replace(defaults=False))
        other = f"{asking.command(candidate, asking.words())}  # at a terminal, where it asks"
        raise Refusal(refusal.reason, refusal.message, fix=[*refusal.fix, other]) from None
    return usable(collection.sidecar, saved)


def _require_store(
    candidate: Candidate, names: list[str], everything: Opened, asks: bool, typed: TypedKey | None
) -> None:
    """The store that would take these secrets can be used. Raises Refusal."""
    if not names:
        return
    stores, service = everything.stores, credential.service(candidate.place.scope, candidate.skill.name)

    async def read() -> None:
        await stores.read(await stores.chosen(), service, names)

    make_usable(stores, {trio.run(stores.chosen)}, asks=asks, typed=typed)
    trio.run(read)


def _missing(request: RegisterRequest, candidate: Candidate, names: list[str], everything: Opened) -> Refusal:
    """Return a refusal that names all missing values at once, and the ways to give them; report each of them."""
    skill, sidecar, words = candidate.skill, sidecar_of(candidate), request.words()
    fields = {field.name: field for field in sidecar.fields}
    for name in names:
        field = fields[name]
        kind = "secret" if isinstance(field, Secret) else field.type
        report(f"refused: {name} ({kind}, required){': ' if field.description else ''}{field.description}")
    fix = []
    if candidate.place.workdir and not request.options.defaults:
        remembered = everything.credentials.defaults(skill.name)
        if all(name in remembered for name in names):
            fix.append(request.command(candidate, words, "--defaults"))
    fix.append(request.command(candidate, words) + "  # at a terminal, where it asks")
    for secret, flag, source, prefix in (
        (True, "--secrets-from", request.options.secrets_from, "OMAC_SECRET_"),
        (False, "--fields-from", request.options.fields_from, "OMAC_CONFIG_"),
    ):
        some = [name for name in names if isinstance(fields[name], Secret) == secret]
        if some:
            lines = f"  # with {', '.join(f'{name}=...' for name in some)}; or in {prefix}{some[0]}"
            file = (flag, "FILE") if source is None else ()  # a second one would replace the first
            fix.append(request.command(candidate, words, *file) + lines)
    message = f"{skill.name} needs {', '.join(names)}, but omac has no terminal to prompt on; nothing was recorded"
    return Refusal("pending-credentials", message, fix=fix, skill=skill.name, missing=names)


def _as_json(done: RegistrationResult, environment: Mapping[str, str]) -> dict[str, object]:
    skill, sidecar = done.candidate.skill, sidecar_of(done.candidate)
    repository = done.candidate.place.repository
    script = install_script(skill, environment)
    sources, declared = done.collected.sources, {secret.name for secret in sidecar.secrets}
    return {
        "skill": skill.name,
        "dir": done.candidate.place.workdir,
        "repository": repository.common if repository else "",
        "source": skill.source,
        "bundle_hash": skill.bundle_hash,
        "digest": done.approved.digest,
        "command": sidecar.command,
        "variables": granted(sidecar),
        "new": done.new,
        "secrets": [
            {"name": name, "store": stored.store, "from": sources[name]}
            for name, stored in sorted(done.given.secrets.items())
            if name in declared
        ],
        "config": [
            {"name": field.name, "value": done.given.config[field.name], "from": sources[field.name]}
            for field in sidecar.config
            if field.name in done.given.config
        ],
        "adopted": done.collected.adopted,
        "missing": list(done.missing),
        "install_script": script,
        "next": done.next,
    }


def _show(request: RegisterRequest, done: RegistrationResult, environment: Mapping[str, str]) -> None:
    skill, sidecar, stored = done.candidate.skill, sidecar_of(done.candidate), done.given
    print_folded(f"{'registered' if done.new else 'already registered'}: {skill.name} in {skill.source}")
    if repository := done.candidate.place.repository:
        print_folded(f"  for the same files in {repository.shown}", 4)
    if not request.brief:
        show_code(done.approved, sidecar)
    for store, where in (("keychain", "the system's keychain"), ("vault", f"the vault {done.vault}")):
        names = [s.name for s in sidecar.secrets if s.name in stored.secrets and stored.secrets[s.name].store == store]
        if names:
            print_folded(f"  secrets kept in {where}: {', '.join(names)}", 4)
    for field in sidecar.config:
        if field.name in stored.config:
            print_folded(f"  {field.name} is {quoted(stored.config[field.name])}", 4)
    if done.collected.adopted:
        print_folded(f"  taken from saved defaults: {', '.join(done.collected.adopted)}", 4)
    script = install_script(skill, environment)
    if script is not None:
        show_install_script(script)
    if done.missing:
        report(f"it does not start without: {', '.join(done.missing)}")
        report_fix([request.command(done.candidate)])
    if done.next and not request.brief:
        serve, activate = done.next
        print_line(f"next: {serve}")
        print_line(f"  or, where a server runs: {activate}")
