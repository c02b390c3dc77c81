"""omac doctor: what this machine lacks for omac, what is wrong with omac's own files, and mending the latter."""

import os
import time
from collections.abc import Mapping, Sequence

from omac.domain.kernel.refusal import REASONS, Refusal, list_command, quoted
from omac.domain.kernel.sizes import counted
from omac.domain.sandbox.doctor import FAIL, OK, WARN, Diagnosis, findings, healthy, report
from omac.domain.sandbox.own_files import (
    DISK,
    NAME,
    diagnose,
    erasure_unfinished,
    mended,
    set_aside_large,
    signing_delayed,
    unreadable,
)
from omac.tools.compose.command_context import secret_stores
from omac.tools.compose.disks import short_disks
from omac.tools.compose.journal_clock import time_ahead
from omac.tools.compose.journals import path_in_use
from omac.tools.compose.machine import probe_machine
from omac.tools.compose.own_files import OwnFiles
from omac.tools.compose.signing import Signer
from omac.tools.compose.state import StateDir
from omac.tools.compose.witnesses import FoundWitness, found_witness
from omac.tools.terminal.invocation import print_json
from omac.tools.terminal.render import print_folded
from omac.tools.terminal.render import report as report_line
from omac.tools.terminal.timestamps import wall_clock


def run(fix: bool, as_json: bool, environment: Mapping[str, str]) -> int:
    """Show the findings, with `fix` after repairing what omac can repair safely. Return 0 when all is well, 5 when
    files of omac's cannot be used, 10 when those of the journal are not whole, the status of the refusal of settings,
    a journal or a vault that cannot be read, else the status of a sandbox that is not available."""
    try:
        StateDir.of(environment).require_own()
    except Refusal as foreign:  # nothing in it can be judged
        return _show((unreadable(NAME, foreign.message, tuple(foreign.fix)),), [], as_json=as_json)
    own = OwnFiles(environment)
    done = _repair(own) if fix else []
    own = OwnFiles(environment) if done else own
    unsigned = (signing_delayed(delay.signed, delay.why) for delay in own.delays)
    lost = [unreadable("segments", refusal.message, tuple(refusal.fix)) for refusal in own.lost]
    lost += [unreadable(name, refusal.message, tuple(refusal.fix)) for name, refusal in own.unreadable.items()]
    unerased = (erasure_unfinished(erasure.workdir) for erasure in own.erasures)
    witness = [] if "journal" in own.unreadable else [_witness(found_witness(environment, own.state))]
    key = _key(environment) if os.path.exists(own.journal) and "journal" not in own.unreadable else ()
    clock = _clock(time_ahead(environment, own.state, time.time_ns()))
    disks = (*short_disks(environment), *set_aside_large(*own.set_aside()))
    ours = (*diagnose(own.state.path, own.flaws()), *disks, *lost, *unsigned, *unerased, *clock, *key, *witness)
    status = _show(ours, done, as_json=as_json)
    if status == REASONS["state-unusable"].exit_code:
        return status
    for refusal in own.unreadable.values():
        return refusal.exit_code
    return REASONS["journal-damaged"].exit_code if own.lost else status


def _show(ours: Sequence[Diagnosis], done: Sequence[str], *, as_json: bool) -> int:
    """Show what was mended, the findings about omac's own files and those about the machine; return the status that
    these ask for."""
    diagnoses = (*ours, *findings(probe_machine()))
    if as_json:
        print_json({"healthy": healthy(diagnoses), "mended": done, "findings": diagnoses})
    else:
        for line in done:
            print_folded(f"[mended] {line}")
        for line in report(diagnoses):
            print_folded(line, 4)
    if any(diagnosis.name in (NAME, DISK) and diagnosis.level == FAIL for diagnosis in diagnoses):
        return REASONS["state-unusable"].exit_code
    return 0 if healthy(diagnoses) else REASONS["sandbox-unavailable"].exit_code


def _clock(ahead: int | None) -> tuple[Diagnosis, ...]:
    """The finding of a journal whose time is ahead of the clock: recorded time never runs back."""
    if ahead is None:
        return ()
    says = (
        f"the journal's last event has the time {wall_clock(ahead)}, which this machine's clock has not reached: until "
        "it has, events are recorded with that time"
    )
    fixes = ("date  # is the clock right?", "omac audit -n 20  # from which event on times are wrong")
    return (Diagnosis("clock", WARN, says, fixes),)


def _key(environment: Mapping[str, str]) -> tuple[Diagnosis, ...]:
    """The finding of a key that is lost or out of reach, or is another than the one that signs the journal."""
    state = StateDir.of(environment)
    try:
        path = path_in_use(state, environment, None)
        problem = Signer(state, path, lambda _: secret_stores(environment)).problem()  # which nobody is asked to open
    except Refusal as refusal:
        problem = refusal
    return (Diagnosis("signing key", WARN, problem.message, tuple(problem.fix)),) if problem else ()


def _witness(witness: FoundWitness) -> Diagnosis:
    name, state = "witness", witness.state
    if witness.is_refused:
        return Diagnosis(name, OK, "checkpoints are kept in the journal alone, as journal.witness says")
    if not witness.name:
        says = "checkpoints are kept in the journal alone: who rewrites it and its checkpoints leaves no trace"
        return Diagnosis(name, WARN, says, ("omac settings set journal.witness /mnt/elsewhere/omac.notes",))
    size = counted(state.size, "event")
    if state.problem:
        says = f"{witness.name} does not get checkpoints: {state.problem}; the last it has counts {size}"
        fix = [list_command(witness.file)] if witness.file else []
        if witness.is_contested:
            fix = [
                "omac checkpoint --received > kept.txt  # where the witness runs: what it keeps",
                "omac audit verify --checkpoint kept.txt  # here: whether more was changed than a restore cut off",
            ]
        return Diagnosis(name, WARN, says, (*fix, "omac settings show"))
    if witness.is_emptied:
        says = f"{witness.name} was changed or replaced: it is without the last checkpoint, which counts {size}"
        return Diagnosis(name, WARN, says, (list_command(witness.name), "omac settings show"))
    if state.size and state.witness == witness.name:
        return Diagnosis(name, OK, f"{witness.name} keeps checkpoints; the last one counts {size}")
    if witness.name.startswith("/") and not os.path.isdir(folder := os.path.dirname(witness.name)):
        says = f"{witness.name} is to keep checkpoints and cannot: the folder {folder} does not exist"
        return Diagnosis(name, WARN, says, (f"mkdir -p {quoted(folder)}", "omac settings show"))
    last = f"; the last one, which counts {size}, went to {state.witness}" if state.size else ""
    says = f"{witness.name} is to keep checkpoints and got none yet{last}; omac start and omac serve deliver them"
    return Diagnosis(name, OK, says)


def _repair(own: OwnFiles) -> list[str]:
    """Mend until nothing is left to be mended: what is in a folder shows once the folder can be listed."""
    done: list[str] = []
    failed: set[str] = set()
    while pending := [flaw for flaw in own.flaws() if flaw.is_mendable and flaw.path not in failed]:
        for flaw in pending:
            try:
                if own.repair(flaw):
                    done.append(mended(flaw))
                else:
                    failed.add(flaw.path)
            except OSError as error:
                failed.add(flaw.path)
                report_line(f"omac: {flaw.path} cannot be mended: {error.strerror}")
    return done
