"""Secret stores in a state directory of their own, beside a keyring of their own."""

import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import real_keyring

from omac.adapters.credentials.stores import SecretStores
from omac.domain.kernel.refusal import Refusal


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return an empty state directory."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[real_keyring.PrivateKeyring]:
    """Yield an open keyring on a bus of its own."""
    with real_keyring.private_keyring(tmp_path) as private_keyring:
        yield private_keyring


@pytest.fixture
def stores(keyring: real_keyring.PrivateKeyring, state: Path) -> SecretStores:
    """Return the secret stores of a machine with that keyring."""
    return SecretStores(str(state), keyring)


def shown(error: BaseException) -> str:
    """Return all text that a log, a debugger or a crash report could show of an error, local variables included."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain:
        chain.append(following)
        following = following.__cause__ or following.__context__
    captured = (traceback.TracebackException.from_exception(each, capture_locals=True) for each in chain)
    ours = [frame for each in captured for frame in each.stack if "/adapters/credentials/" in frame.filename]
    held = [str(frame.locals) for frame in ours if "/tests/" not in frame.filename]
    return "\n".join([*map(repr, chain), *map(str, chain), *(str(vars(each)) for each in chain), *held])


@pytest.fixture
def refused() -> Callable[[Awaitable[object]], Awaitable[Refusal]]:
    """Return a function that awaits a call and returns its refusal; no text of the refusal shows a value."""

    async def catch(call: Awaitable[object]) -> Refusal:
        with pytest.raises(Refusal) as caught:
            await call
        assert "xoxb" not in shown(caught.value)
        assert caught.value.__context__ is None
        return caught.value

    return catch
