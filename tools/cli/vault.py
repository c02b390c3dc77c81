"""omac vault and omac unlock: the encrypted file for secrets, and opening the stores that are locked."""

import os
from collections.abc import Collection, Mapping
from typing import cast

import msgspec
import trio

from omac.domain.kernel.hidden import Hidden
from omac.domain.kernel.refusal import Refusal, quoted
from omac.domain.kernel.sizes import counted
from omac.domain.skills.meta import Secret
from omac.domain.skills.values import ValueRefused, check_secret
from omac.tools.cli.control import ask_each, ask_run
from omac.tools.cli.skill_argument import at_terminal, text_of
from omac.tools.cli.vault_key import TypedKey, ask_vault_key
from omac.tools.compose import vaults
from omac.tools.compose.state import living_sockets
from omac.tools.compose.vaults import FILE_VARIABLE, KEYCHAIN, VAULT, SecretStores, Vault, VaultKey
from omac.tools.terminal.invocation import expanded, print_data, print_json, typed_with
from omac.tools.terminal.render import print_folded, print_line, report, report_fix

PASSPHRASE_CHARS_MIN = 8
PASSPHRASE_BYTES_MAX = 64 * 1024
KEY_FILE = "~/.config/omac/vault.key"  # in what a person may paste


def make_usable(
    stores: SecretStores, needed: Collection[str], *, asks: bool = True, typed: TypedKey | None = None
) -> None:
    """Have the vault opened, if it is among the stores that are needed, locked, and its person at a terminal where the
    command `asks`; by the key of `typed` where that fits, which afterwards has the one that was asked for. Raises
    Refusal (vault-*)."""
    from omac.tools.terminal.prompts import can_ask

    if VAULT not in needed:
        return
    typed = typed or TypedKey()
    if typed.key is not None:
        stores.give_vault_key(typed.key)
    try:
        trio.run(stores.unlock, VAULT)
    except Refusal as refusal:
        is_another = refusal.reason == "vault-key-wrong" and typed.key is not None  # the passphrase was changed
        if not (is_another or refusal.reason == "vault-locked") or not stores.vault.has_passphrase():
            raise
        if not (asks and can_ask()):
            message = (
                "the vault is locked; this command has to ask for its passphrase, which omac unlock gives to servers"
            )
            fix = [typed_with("  # at a terminal, where it asks")]
            raise Refusal("vault-locked", f"{message} alone", fix=fix) from None
        typed.key = _typed_key(stores.vault)
        stores.give_vault_key(typed.key)


def init(key_file: str | None, environment: Mapping[str, str]) -> int:
    """Make a vault: under a new key file, the key at hand, or a passphrase. Raises Refusal."""
    vault = vaults.secret_stores(environment).vault
    if vault.exists():
        fix = ["omac vault status"]
        raise Refusal("vault-exists", f"a vault exists at {vault.path} already; omac left it unchanged", fix=fix)
    if key_file is not None:
        _init_with_new_key(vault, os.path.abspath(expanded(key_file)))
        return 0
    at_hand = vaults.key_of_environment(environment)
    if at_hand is not None:
        vault.create_with_key(at_hand.key)
        vault.check(at_hand)  # which notes where its key file is
        print_folded(f"made the vault {vault.path}; it opens with {at_hand.origin}")
        return 0
    if environment.get(FILE_VARIABLE):
        missing = os.path.abspath(environment[FILE_VARIABLE])
        fix = [f"omac vault init --key-file {quoted(missing)}"]
        raise Refusal("misuse", f"{FILE_VARIABLE} names {missing}, which does not exist", fix=fix)
    if not at_terminal():
        message = "the vault needs a passphrase, but there is no terminal to type it on; use a key file instead"
        raise Refusal("misuse", message, fix=[f"omac vault init --key-file {KEY_FILE}"])
    vault.create_with_passphrase(_new_passphrase())
    print_folded(f"made the vault {vault.path}; only the passphrase opens it; omac asks for it, and does not store it")
    return 0


def status(as_json: bool, environment: Mapping[str, str]) -> int:
    """Show where the vault is, what opens it, and how much is in it, if it is open here. Raises Refusal."""
    vault = vaults.secret_stores(environment).vault
    document: dict[str, object] = {
        "path": vault.path, "exists": vault.exists(), "key": None, "locked": None, "services": None, "names": None,
    }  # fmt: skip
    detail = ""
    if vault.exists():
        document["key"] = "passphrase" if vault.has_passphrase() else "key file"
        at_hand = vaults.key_of_environment(environment)
        try:
            counted = None if at_hand is None else vaults.counted(vault, at_hand)
        except Refusal as refusal:
            if refusal.reason != "vault-key-wrong":
                raise
            counted, detail = None, refusal.message
        document["locked"] = counted is None
        if counted is not None:
            document["services"], document["names"] = counted
    if as_json:
        print_json(document)
        return 0
    _show_status(vault, document, detail, bool(living_sockets(environment)))
    return 0


def passwd(environment: Mapping[str, str]) -> int:
    """Change the passphrase of the vault; runs that hold its key get the new one. Raises Refusal."""
    vault = vaults.secret_stores(environment).vault
    if not vault.has_passphrase():
        message = f"the vault {vault.path} opens with a key file, and has no passphrase"
        raise Refusal("misuse", message, fix=["omac vault status"])
    if not at_terminal():
        message = "no terminal to type the passphrases on; nothing was changed"
        raise Refusal("misuse", message, fix=["omac vault passwd  # at a terminal"])
    before = vaults.KeyAtHand(_typed_key(vault), "this passphrase")
    key, unflushed = vault.change_passphrase(before, _new_passphrase("nothing was changed", "omac vault passwd"))
    print_folded(f"changed the passphrase of the vault {vault.path}")
    for run in living_sockets(environment):
        try:
            ask_run(run, "POST", "/__omac__/unlock", {"key": key.hex(), "renews": True})
        except Refusal as refusal:
            report(f"the run at {os.path.dirname(run)} did not take the new key: {refusal.message}")
            report_fix(["omac unlock"])
    if unflushed:
        raise unflushed
    return 0


def lock(as_json: bool, environment: Mapping[str, str]) -> int:
    """Have each run that lives forget the key of the vault. Raises Refusal once all were asked."""
    vault = vaults.secret_stores(environment).vault
    answers, refusals = [], []
    for run in living_sockets(environment):
        try:
            if (answer := ask_run(run, "POST", "/__omac__/lock", {})) is not None:
                answers.append(msgspec.json.decode(answer))
        except Refusal as refusal:
            refusals.append(refusal)
    forgotten = sum(bool(answer["forgotten"]) for answer in answers)
    opened_by = sorted({answer["opened_by"] for answer in answers if answer["opened_by"]})
    if as_json:
        print_json({"path": vault.path, "runs": len(answers), "forgotten": forgotten, "opened_by": opened_by})
    else:
        had = f"{forgotten} of {counted(len(answers), 'run')} had" if answers else "no run lives that could have"
        print_folded(f"{had} the key of the vault {vault.path}{', and forgot it' if forgotten else ''}")
        if forgotten:
            print_folded(
                "sidecars that run keep their values until they end: omac deactivate DIR ends those of a project"
            )
        for origin in opened_by:
            report(f"a run still opens the vault by {origin}")
    if refusals:
        raise refusals[0]
    return 0


def unlock(as_json: bool, environment: Mapping[str, str]) -> int:
    """Open whichever store is locked, for every omac that runs. Raises Refusal."""
    stores = vaults.secret_stores(environment)
    runs = bool(ask_each(environment, "GET", "/__omac__/dirs"))
    used = vaults.used_stores(stores, environment)
    looked_at: list[str] = []
    if VAULT in used:
        key = _vault_key(stores, runs, environment)
        looked_at += _inform_server(runs, {"key": key.hex()}, environment)
    if KEYCHAIN in used:  # what may prompt in vain comes last
        trio.run(stores.unlock, KEYCHAIN)
        looked_at += _inform_server(runs, {}, environment)
    if as_json:
        document = {"stores": sorted(used), "server": runs, "dirs": list(dict.fromkeys(looked_at))}
        print_json(document)
        return 0
    names = {VAULT: f"the vault {stores.vault.path}", KEYCHAIN: "the system's keychain"}
    print_line(f"{' and '.join(names[store] for store in sorted(used))}: open")
    for path in dict.fromkeys(looked_at):
        print_line(f"the server reloads {path or 'the global skills'}")
    return 0


def _inform_server(runs: bool, document: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Have all that run look again at what waits; returns the directories. Raises Refusal."""
    answers = ask_each(environment, "POST", "/__omac__/unlock", document) if runs else []
    return [path for answer in answers for path in msgspec.json.decode(answer)["dirs"]]


def _vault_key(stores: SecretStores, runs: bool, environment: Mapping[str, str]) -> VaultKey:
    """The right key: the one at hand, else the one that a passphrase makes."""
    at_hand = vaults.key_of_environment(environment)
    if at_hand is not None:
        stores.vault.check(at_hand)
        return at_hand.key
    if not stores.vault.has_passphrase():
        message = f"the vault {stores.vault.path} opens with its key file, and {FILE_VARIABLE} does not name it"
        raise Refusal("vault-locked", message, fix=[stores.vault.unlock_command()])
    if not runs:
        raise Refusal(
            "not-found",
            "no omac serve is running here to keep the vault's key. Commands prompt for the passphrase themselves; "
            f"without a terminal, use a vault made with --key-file, which opens with {FILE_VARIABLE}",
            fix=["omac serve --no-inner --root ."],
        )
    return _typed_key(stores.vault) if at_terminal() else _read_key(stores.vault)


def _typed_key(vault: Vault) -> VaultKey:
    key = ask_vault_key(vault)
    assert key is not None, "no question without an answer was asked"
    return key


def _read_key(vault: Vault) -> VaultKey:
    from omac.tools.terminal.prompts import read_stdin

    text = text_of(read_stdin(PASSPHRASE_BYTES_MAX))
    if not text:
        problem = "is empty" if text == "" else "is not text"
        message = f"the passphrase of the vault {vault.path} is missing: stdin {problem}"
        raise Refusal("prompt-ended", message, fix=["omac unlock"])
    try:
        return vault.key_from_passphrase(Hidden(text))
    except Refusal as refusal:
        raise Refusal(refusal.reason, refusal.message, fix=refusal.fix or [typed_with("  # asks again")]) from None


def _init_with_new_key(vault: Vault, path: str) -> None:
    vaults.create_under_new_key(vault, path)
    report(f"made the vault {vault.path}; the key file {path} opens it: keep that safe, apart from the vault")
    print_data(f"export {FILE_VARIABLE}={quoted(path)}")


def _show_status(vault: Vault, document: Mapping[str, object], detail: str, runs: bool) -> None:
    if not document["exists"]:
        print_line(f"no vault exists at {document['path']}")
        report_fix(["omac vault init"])
        return
    print_line(f"{document['path']}: a vault that opens with its {document['key']}")
    if document["locked"]:
        print_line(f"locked here{': ' + detail if detail else ''}")
        if document["key"] != "passphrase":
            report_fix([vault.unlock_command() if runs else vault.export_command()])
        else:
            report("commands that need it ask for the passphrase")
            if runs:  # which of them have the key is theirs to know
                report_fix(["omac unlock  # where omac status has a skill that waits for it"])
    else:
        names, services = cast("int", document["names"]), cast("int", document["services"])
        print_line(f"open here: {counted(names, 'value')} of {counted(services, 'skill')}")


def _new_passphrase(otherwise: str = "no vault was created", command: str = "omac vault init") -> Hidden:
    """Ask for a passphrase twice, again where it is too short or the two differ. Raises Refusal: value-refused after
    TRIES, prompt-ended."""
    from omac.tools.terminal.prompts import TRIES, ask_secret

    wanted = Secret("passphrase", f"of the new vault, {PASSPHRASE_CHARS_MIN} characters or more")
    for left in reversed(range(TRIES)):
        try:
            first = ask_secret(wanted, check=_long_enough)
        except Refusal as refusal:
            if refusal.reason != "value-refused":
                raise
            raise Refusal("value-refused", f"no passphrase was accepted; {otherwise}", fix=[command]) from None
        assert first is not None, "no question without an answer was asked"
        if first == ask_secret(Secret("passphrase", "the same again")):
            return first
        if left:
            report(f"  the two passphrases differ; {counted(left, 'more try', 'more tries')}", 4)
    raise Refusal("value-refused", f"the two passphrases differ; {otherwise}", fix=[command])


def _long_enough(field: Secret, text: str) -> Hidden:
    """The passphrase that a text is. Raises ValueRefused."""
    if 0 < len(text) < PASSPHRASE_CHARS_MIN:
        raise ValueRefused(field.name, f"has fewer than {PASSPHRASE_CHARS_MIN} characters")
    return check_secret(field, text)
