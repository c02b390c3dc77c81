"""omac sandbox doctor: what this machine can do to confine a program, and what mends the rest."""

from omac.domain.kernel.refusal import REASONS
from omac.domain.sandbox.doctor import findings, healthy, report
from omac.tools.compose.machine import probe_machine
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import print_line


def run(as_json: bool) -> int:
    """Show the findings; 0 when a sandbox can be built, else the status of a sandbox that is not available."""
    diagnoses = findings(probe_machine())
    if as_json:
        print_json({"healthy": healthy(diagnoses), "findings": diagnoses})
    else:
        for line in report(diagnoses):
            print_line(line)
    return 0 if healthy(diagnoses) else REASONS["sandbox-unavailable"].exit_code
