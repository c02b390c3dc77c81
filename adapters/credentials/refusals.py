"""How a keychain's trouble is said: which reason, and the command that mends it. No value is in any of these."""

from collections.abc import Iterable

from omac.domain.kernel.refusal import Refusal

# A running daemon takes no password from a second one, hence --replace. A line's end would become part of the password.
ASK = """(stty -echo; IFS= read -r password; stty echo; printf %s "$password")"""
UNLOCK_BY_HAND = f"{ASK} | gnome-keyring-daemon --replace --unlock  # type the keyring's password"
USE_VAULT = "omac vault init"


def unavailable(why: str, *fix: str) -> Refusal:
    """There is no keychain here, or none that can take a value."""
    return Refusal("keychain-unavailable", f"the system's keychain cannot be used: {why}", fix=[*fix, USE_VAULT])


def locked() -> Refusal:
    """There is one, and its owner has to open it."""
    return Refusal("keychain-locked", "the system's keychain is locked", fix=["omac unlock"])


def still_locked(by_hand: str) -> Refusal:
    """Its owner was asked to open it, and did not."""
    message = "the system's keychain is still locked: its prompt was dismissed, or could not be shown here"
    return Refusal("keychain-locked", message, fix=[by_hand])


def timed_out(seconds: float) -> Refusal:
    """It is there, and says nothing."""
    message = f"the system's keychain did not answer within {seconds:g} s"
    return Refusal("keychain-timeout", message, fix=["busctl --user status org.freedesktop.secrets", "omac unlock"])


def failed(why: str) -> Refusal:
    """It answered, and not as it must. `why` must not quote the answer: a value may be in it."""
    return Refusal("keychain-failed", f"the system's keychain failed: {why}", fix=[USE_VAULT])


def lied(service: str, names: Iterable[str], why: str) -> Refusal:
    """It said that it did what it did not do."""
    return failed(f"{why}: {', '.join(sorted(names))} of {service}")
