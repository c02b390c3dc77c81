"""The key of the vault, which a person opens by typing its passphrase."""

from typing import TYPE_CHECKING

from omac.domain.kernel.refusal import Refusal
from omac.domain.kernel.sizes import counted
from omac.domain.skills.meta import Secret
from omac.tools.terminal.invocation import typed_with
from omac.tools.terminal.render import report

if TYPE_CHECKING:
    from omac.tools.compose.vaults import Vault, VaultKey

TRIES = 3


class TypedKey:
    """The key that a passphrase made, for the rest of a command that needs the vault several times."""

    def __init__(self) -> None:
        self.key: VaultKey | None = None


def ask_vault_key(
    vault: "Vault", for_what: str = "", instead: str | None = None, remark: str = "asks again"
) -> "VaultKey | None":
    """Return the key of the passphrase that a person typed, who has TRIES tries; None where `instead` says what an
    empty answer does, and it was given. Raises Refusal: vault-key-wrong after the last try, with the command as it was
    typed and `remark`; prompt-ended; vault-* where the vault cannot be read."""
    from omac.tools.terminal.prompts import ask_secret

    wanted = Secret("passphrase", f"of the vault {vault.path}{for_what}")
    for left in reversed(range(TRIES)):
        passphrase = ask_secret(wanted, instead=instead)
        if passphrase is None:
            return None
        try:
            return vault.key_from_passphrase(passphrase)
        except Refusal as refusal:
            if refusal.reason != "vault-key-wrong" or refusal.fix:  # it opens with a key file
                raise
            if not left:
                raise Refusal(refusal.reason, refusal.message, fix=[typed_with(f"  # {remark}")]) from None
            report(f"  {refusal.message}; {counted(left, 'more try', 'more tries')}", 4)
    raise AssertionError("the last try returned or raised")
