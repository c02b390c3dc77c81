"""omac trust: the skills of a project one after the other, read and then approved, with the values they need.

Rules

1. What is shown is a copy that no agent can change, and an approval is for exactly that copy: files that change while
   a person reads are not approved.
2. Nothing is approved without an answer: an empty one, the end of the input and Ctrl-C approve nothing, and
   of these only an empty one leads to the next skill.
3. Saved values are offered to the code that they were given to, file by file, and to no other of that name.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.skills.registration import Code
from omac.services.skills.resolution import SkillSearch, every
from omac.tools.cli.approve import show_interpreters
from omac.tools.cli.next_command import next_commands
from omac.tools.cli.pager import paged
from omac.tools.cli.register import RegisterRequest
from omac.tools.cli.register import run as register
from omac.tools.cli.review import Review, files_of, frozen, review_of, show_files, show_purpose
from omac.tools.cli.show import command, show_approval, show_contents, show_differences
from omac.tools.cli.skill_notes import note_guide, note_namesakes, note_unknown_keys
from omac.tools.cli.value_sources import ValueOptions
from omac.tools.cli.vault_key import TypedKey
from omac.tools.compose.approved_copies import FrozenFiles
from omac.tools.compose.command_context import opened
from omac.tools.compose.registered_skills import Registry
from omac.tools.compose.scope_options import Where, at_once, directory_of, for_repository, is_home, search_of
from omac.tools.compose.skill_files import DiskSkillFolders, Neighbours
from omac.tools.terminal.prompts import can_ask, choose
from omac.tools.terminal.render import print_folded, print_line, report, report_fix

FAILED = "failed"


class TrustRequest(NamedTuple):
    """The command line, as typed."""

    where: Where
    journal: str | None = None
    typed: TypedKey | None = None  # the vault's passphrase is typed once for all skills


class Counts(NamedTuple):
    """The numbers of skills that were approved now, were approved before, are not, and are but lack values; `failed`
    counts those that could not be shown, or that a person said yes to in vain, `yes` all others with that answer."""

    approved: int = 0
    before: int = 0
    left: int = 0
    waiting: int = 0
    failed: int = 0
    yes: int = 0

    def after(self, reviewed: Review, answer: str) -> "Counts":
        """Return the numbers with one more skill, which was pending."""
        was_approved, yes = reviewed.state == "approved", answer == "y"
        return Counts(
            self.approved + (yes and not was_approved),
            self.before + was_approved,
            self.left + (not yes and not was_approved),
            self.waiting + (not yes and was_approved),
            self.failed + (answer == FAILED),
            self.yes + yes,
        )

    def shown(self) -> str:
        """Return the line for people."""
        waiting = f", {self.waiting} without required values" if self.waiting else ""
        return f"{self.approved} approved, {self.before} approved before, {self.left} not approved{waiting}"


def run(request: TrustRequest, environment: Mapping[str, str]) -> int:
    """Go through the skills; 1 where one could not be shown, or an approval failed that a person wanted. Raises
    Refusal: misuse without a terminal, which names the single commands."""
    folders = DiskSkillFolders(environment)
    request = request._replace(typed=TypedKey())
    if is_home(directory_of(request.where)):
        report("in your home folder: these skills are shared by all projects")
        request = request._replace(where=request.where._replace(workdir=None, shared=True))
    search = _search(request.where, folders)
    registry = Registry.read(environment, request.journal)
    candidates = at_once(every(folders, search, guidance=True))
    if request.where.repository:
        again = f"omac trust {quoted(search.workdir)}"
        candidates = [
            for_repository(candidate, request.where, again) if candidate.place.workdir else candidate
            for candidate in candidates
        ]
    reviews = [
        _with_copy(review_of(candidate, registry, folders), registry, request, environment) for candidate in candidates
    ]
    reviews.sort(key=lambda review: (not review.candidate.place.workdir, review.skill.name, review.skill.base))
    if not reviews:
        report(f"no skills in {search.workdir}")
        report_fix([f"omac skill new hello --workdir {quoted(search.workdir)}"])
        return 0
    neighbours = Neighbours([review.skill.source for review in reviews])
    for review in reviews:
        note_namesakes(review.skill, neighbours)
    pending = [review for review in reviews if _needs(review, environment)]
    if pending and not can_ask():
        raise _without_terminal(pending)
    counts, answer = Counts(), ""
    for number, reviewed in enumerate(reviews, 1):
        if reviewed not in pending:
            if reviewed.state == "approved":
                print_line(f"{reviewed.skill.name}: approved already")
                counts = counts._replace(before=counts.before + 1)
            continue
        if answer != "q":  # after that nothing more is asked
            print_line("")
            print_line(f"[{number} of {len(reviews)}]")
            answer = _ask(reviewed, request, environment)
        counts = counts.after(reviewed, answer)
    print_line("")
    print_line(counts.shown())
    if counts.yes and request.where.shared:
        print_line("next: cd ~/projects/shop && omac  # the project to work in")
    elif counts.yes:
        start, activate = next_commands(search.workdir, environment)
        print_line(f"next: {start}")
        print_line(f"  or, where a server runs: {activate}")
    return 1 if counts.failed else 0


def _search(where: Where, folders: DiskSkillFolders) -> SkillSearch:
    """Return the search for these flags. Raises Refusal, which considers that a skill may be named, not a folder."""
    try:
        return search_of(where, folders)
    except Refusal as refusal:
        name = where.workdir or ""
        if refusal.reason != "directory-missing" or not name or "/" in name:
            raise
        fix = [*refusal.fix, f"omac approve {quoted(name)}  # if that is the name of a skill"]
        raise Refusal(refusal.reason, refusal.message, fix=fix) from None


def _with_copy(
    reviewed: Review,
    registry: Registry,
    request: TrustRequest,
    environment: Mapping[str, str],
) -> Review:
    """Return a skill whose approved copy is whole, if the files that were approved are still there: of these it is made
    again, which approves nothing. Any other skill is returned as it is."""
    if reviewed.standing.obstacle:
        with suppress(Refusal):
            frozen(reviewed, request.journal, environment)
        before, reviewed = reviewed, review_of(reviewed.candidate, registry, DiskSkillFolders(environment))
        if not reviewed.standing.obstacle:
            report(f"{reviewed.skill.name}: {before.standing.obstacle}; it was made again of the approved files")
    return reviewed


def _needs(reviewed: Review, environment: Mapping[str, str]) -> bool:
    return reviewed.state in ("not approved", "changed", "broken") or (
        reviewed.state == "approved" and bool(reviewed.missing(environment))
    )


def _ask(reviewed: Review, request: TrustRequest, environment: Mapping[str, str]) -> str:
    """Show a skill, and ask; return y for one that is approved now, n for one that is not, FAILED for one that was to
    be or that omac could not show, q to end. Raises Refusal."""
    if reviewed.state == "broken":
        print_folded(f"{reviewed.skill.name} cannot be used: {reviewed.skill.problem}")
        report_fix([f"omac skill check {quoted(reviewed.skill.source)}"])
        return "n"
    try:
        code, copy = frozen(reviewed, request.journal, environment)
    except Refusal as refusal:
        report(f"{reviewed.skill.name} cannot be approved: {refusal.message}")
        report_fix(refusal.fix)
        return "n" if refusal.reason == "skill-invalid" else FAILED
    show_purpose(reviewed, environment, code)
    if reviewed.candidate.place.repository:
        print_folded(f"  an approval holds for the same files in {reviewed.candidate.place.repository.shown}", 4)
    if reviewed.approved is None or reviewed.approved.interpreters != code.interpreters:
        show_interpreters(code)
    show_approval(reviewed, environment, code.digest)
    files = files_of(copy)
    if reviewed.state != "changed" or not _shows_differences(reviewed, copy, request, environment):
        show_files(files)
    note_guide(reviewed.skill)
    note_unknown_keys(reviewed.skill)
    missing = reviewed.missing(environment)
    question = "Approve it?" if reviewed.state != "approved" else f"It waits for {', '.join(missing)}. Set this now?"
    while (answer := choose(f"{question} [y]es, [f]iles, [q]uit, [n]o:", "yfqn")) == "f":
        with paged():
            show_contents(copy, list(files))
    if answer != "y":
        return answer
    return _approve(reviewed, code, request, environment)


def _shows_differences(
    reviewed: Review, copy: FrozenFiles, request: TrustRequest, environment: Mapping[str, str]
) -> bool:
    """Print the difference to what was approved; False where that copy is gone."""
    try:
        return show_differences(reviewed, copy, environment, request.journal)
    except Refusal as refusal:
        report(refusal.message)
        return False


def _approve(reviewed: Review, code: Code, request: TrustRequest, environment: Mapping[str, str]) -> str:
    """Approve the copy that was shown, and ask for its values; return y, or FAILED."""
    skill_scope, skill = reviewed.candidate.place, reviewed.skill
    where = Where(
        skill_scope.workdir or None, not skill_scope.workdir, skill_scope.harness, skill_scope.repository is not None
    )
    options = ValueOptions(defaults=_takes_saved(reviewed, code, request, environment))
    wanted = RegisterRequest(
        skill.name,
        where,
        options,
        True,
        code.digest,
        request.journal,
        remembered_for=code.digest,
        brief=True,
        typed=request.typed,
    )
    try:
        register(wanted, environment)
    except Refusal as refusal:
        outcome = "got no values" if reviewed.state == "approved" else "is not approved"
        report(f"{skill.name} {outcome}: {refusal.message}")
        again = [f"omac trust {quoted(skill_scope.workdir or '.')}{' --repository' if skill_scope.repository else ''}"]
        report_fix(again if refusal.reason == "skill-changed" else refusal.fix)
        return FAILED
    return "y"


def _takes_saved(reviewed: Review, code: Code, request: TrustRequest, environment: Mapping[str, str]) -> bool:
    """Ask whether values that were given to these very files in another project shall be used here too."""
    sidecar = reviewed.skill.sidecar
    names = [field.name for field in sidecar.fields] if sidecar and reviewed.candidate.place.workdir else []
    with opened(environment, request.journal) as everything:
        saved = everything.credentials.defaults(reviewed.skill.name)
    present = {*reviewed.given.secrets, *reviewed.given.config}
    offered = [name for name in names if name in saved and saved[name].code == code.digest and name not in present]
    if not offered:
        return False
    question = f"The same files got {', '.join(offered)} in another project. Use these values? [y]es, [n]o:"
    return choose(question, "yn") == "y"


def _without_terminal(pending: list[Review]) -> Refusal:
    fix = []
    for reviewed in pending:
        match reviewed.state:
            case "broken":
                fix.append(f"omac skill check {quoted(reviewed.skill.source)}")
            case "changed":
                fix.append(command("diff", reviewed))
            case "not approved":
                fix.append(command("show", reviewed))
            case _:
                fix.append(command("register", reviewed))
    names = ", ".join(review.skill.name for review in pending)
    return Refusal("misuse", f"omac trust needs a terminal to ask about {names}", fix=fix)
