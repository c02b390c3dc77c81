"""omac doctor: what this machine lacks for omac, what is wrong with omac's own files, and mending the latter."""

from collections.abc import Mapping

from omac.domain.kernel.refusal import REASONS
from omac.domain.sandbox.doctor import FAIL, findings, healthy, report
from omac.domain.sandbox.own_files import NAME, diagnose, mended
from omac.tools.compose.machine import probe_machine
from omac.tools.compose.own_files import OwnFiles
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import report as report_line
from omac.tools.terminal.render import say_folded


def run(fix: bool, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show the findings, with `fix` after mending what omac can mend safely. 0 when all is well, 5 when files of omac's
    cannot be used, else the status of a sandbox that is not available."""
    own = OwnFiles(environment)
    done = _mend(own) if fix else []
    diagnoses = (*diagnose(own.state.path, own.flaws()), *findings(probe_machine()))
    if as_json:
        print_json({"healthy": healthy(diagnoses), "mended": done, "findings": diagnoses})
    else:
        for line in done:
            say_folded(f"[mended] {line}")
        for line in report(diagnoses):
            say_folded(line, 4)
    if any(one.name == NAME and one.level == FAIL for one in diagnoses):
        return REASONS["state-unusable"].exit_code
    return 0 if healthy(diagnoses) else REASONS["sandbox-unavailable"].exit_code


def _mend(own: OwnFiles) -> list[str]:
    """Mend until nothing is left to be mended: what is in a folder shows once the folder can be listed."""
    done: list[str] = []
    failed: set[str] = set()
    while pending := [flaw for flaw in own.flaws() if flaw.is_mendable and flaw.path not in failed]:
        for flaw in pending:
            try:
                if own.mend(flaw):
                    done.append(mended(flaw))
                else:
                    failed.add(flaw.path)
            except OSError as error:
                failed.add(flaw.path)
                report_line(f"omac: {flaw.path} cannot be mended: {error.strerror}")
    return done
