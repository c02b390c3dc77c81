"""omac start --explain: what a launch would run, be given and be denied; nothing is started or recorded."""

import shlex
from collections.abc import Mapping

from omac.domain.harness.table import harness_named
from omac.domain.kernel.redaction import redacted
from omac.services.sandbox.explanation import document_of, explained
from omac.services.skills.resolution import every
from omac.tools.cli.overview import state_of
from omac.tools.cli.review import review_of
from omac.tools.compose.agent_launch import AgentLaunch
from omac.tools.compose.launch_explanation import explanation
from omac.tools.compose.registered_skills import Registry
from omac.tools.compose.scope_options import Where, at_once, search_of
from omac.tools.compose.serve_options import ServeOptions
from omac.tools.compose.skill_files import DiskSkillFolders
from omac.tools.terminal.columns import elided, elided_middle
from omac.tools.terminal.invocation import print_data, print_json
from omac.tools.terminal.render import print_folded, print_line

WORD_SHOWN = 60  # characters of an argument: omac's own are long
HANG = 9


def explain(wanted: ServeOptions, launch: AgentLaunch, environment: Mapping[str, str], *, as_json: bool) -> int:
    """Print what the launch would be. Raises Refusal, as the launch would."""
    folders, registry = DiskSkillFolders(environment), Registry.read(environment, wanted.journal)
    candidates = at_once(every(folders, search_of(Where(launch.workdir), folders), guidance=True))
    reviews = [
        review_of(candidate, registry, folders)
        for candidate in candidates
        if candidate.skill.base in wanted.harness.bases
    ]
    mounts = [review.skill.sidecar.mount for review in reviews if review.skill.sidecar is not None]
    preview = explanation(launch, wanted.harness, mounts, environment)
    states = {review.skill.name: state_of(review, environment) for review in reviews}
    agent = harness_named(launch.agent) if launch.agent else None
    if as_json:
        document = {
            "dir": launch.workdir, "agent": launch.agent, "command": preview.argv, "skills": states,
            "gets": preview.gets, "drops": preview.drops,
            "sandbox": None if preview.sandbox is None else document_of(preview.sandbox),
        }  # fmt: skip
        print_json(document)
        return 0
    print_line(elided_middle(f"project  {launch.workdir}", 80))
    program, *arguments = redacted(preview.argv)
    print_folded(f"runs     {shlex.join([program, *(elided(word, WORD_SHOWN) for word in arguments)])}", HANG)
    if agent is not None and agent.confined and preview.sandbox is not None:
        print_folded(f"off      its own sandbox and approvals: {' '.join(agent.confined)}", HANG)
    for number, (name, state) in enumerate(sorted(states.items())):
        print_line(f"{'skills' if number == 0 else '':<9}{name}  {state}")
    if not states:
        print_line("skills   none")
    if preview.sandbox is None:
        print_line("sandbox  none: all your rights, and all your variables")
        return 0
    print_folded(f"drops    {' '.join(preview.drops) or 'no variable of yours'}", HANG)
    if preview.drops:
        print_line("         --env NAME passes one of these")
    print_folded(f"gets     {' '.join(preview.gets)}", HANG)
    print_line("")
    print_data(explained(preview.sandbox, launched=True).rstrip("\n"))
    return 0
