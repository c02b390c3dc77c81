"""Stores in a state directory of their own, beside a keyring of their own."""

import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import real_keyring

from omac.adapters.credentials.stores import SecretStores
from omac.domain.kernel.refusal import Refusal


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """An empty state directory."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[real_keyring.PrivateKeyring]:
    """An open keyring on a bus of its own."""
    with real_keyring.private_keyring(tmp_path) as found:
        yield found


@pytest.fixture
def stores(keyring: real_keyring.PrivateKeyring, state: Path) -> SecretStores:
    """The stores of a machine with that keyring."""
    return SecretStores(str(state), keyring)


def shown(error: BaseException) -> str:
    """All that a log, a debugger or a crash report could show of an error, local variables included."""
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
    """The refusal that a call ends with; it shows no value, wherever one looks."""

    async def catch(call: Awaitable[object]) -> Refusal:
        with pytest.raises(Refusal) as caught:
            await call
        assert "xoxb" not in shown(caught.value)
        assert caught.value.__context__ is None
        return caught.value

    return catch
