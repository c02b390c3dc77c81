"""The refusals for a keychain's trouble: the reason and the command that mends it, without any value."""

from collections.abc import Iterable

from omac.domain.kernel.refusal import Refusal

# A running daemon takes no password from a second one, hence --replace. A line's end would become part of the password.
ASK = """(stty -echo; IFS= read -r password; stty echo; printf %s "$password")"""
UNLOCK_BY_HAND = f"{ASK} | gnome-keyring-daemon --replace --unlock  # type the keyring's password"
USE_VAULT = "omac vault init"
CHOOSE_VAULT = "omac settings set secrets.store vault"  # where the keychain is chosen by a setting


def unavailable(why: str, *fix: str) -> Refusal:
    """Return the refusal for a keychain that is missing, or that cannot take a value."""
    return Refusal("keychain-unavailable", f"the system's keychain cannot be used: {why}", fix=[*fix, USE_VAULT])


def locked() -> Refusal:
    """Return the refusal for a keychain that its owner has to unlock."""
    return Refusal("keychain-locked", "the system's keychain is locked", fix=["omac unlock"])


def still_locked() -> Refusal:
    """Return the refusal for a keychain that is locked even after its prompt."""
    message = "the system's keychain is still locked: its prompt was dismissed, or could not be shown here"
    return Refusal("keychain-locked", message, fix=[UNLOCK_BY_HAND])


def timed_out(seconds: float) -> Refusal:
    """Return the refusal for a keychain that did not answer in time."""
    message = f"the system's keychain did not answer within {seconds:g} s"
    return Refusal("keychain-timeout", message, fix=["busctl --user status org.freedesktop.secrets", "omac unlock"])


def failed(why: str) -> Refusal:
    """Return the refusal for a keychain that answered wrongly. `why` must not quote the answer, which may be a
    value."""
    return Refusal("keychain-failed", f"the system's keychain failed: {why}", fix=[USE_VAULT])


def change_not_made(service: str, names: Iterable[str], why: str) -> Refusal:
    """Return the refusal for a keychain that confirmed a change and did not make it."""
    return failed(f"{why}: {', '.join(sorted(names))} of {service}")
