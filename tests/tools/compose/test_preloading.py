"""tools/compose/preloading.py: code that omac would load later is out of a program's reach, or loaded before."""

import sys
from pathlib import Path

import pytest

from omac.tools.compose.preloading import is_exposed

CHECKOUT = Path(__file__).resolve().parents[3]
LIBRARIES = Path(pytest.__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "folder", [CHECKOUT, CHECKOUT / "adapters", CHECKOUT / "adapters/control", LIBRARIES / "quart", Path(sys.prefix)]
)
def test_own_code_in_a_folder_that_may_be_changed(folder: Path) -> None:
    assert is_exposed(["/nowhere", str(folder)])


def test_own_code_elsewhere(tmp_path: Path) -> None:
    assert not is_exposed([str(tmp_path), str(CHECKOUT / "docs")])
    assert not is_exposed([])
