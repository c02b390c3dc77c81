"""Manual pages: their text is that of the help, and groff formats them without a warning."""

import shutil
import subprocess
from pathlib import Path

import pytest
from command_walk import ALL, GROUPS
from real_omac import Omac
from tiers import some

SHIPPED = Path(__file__).parents[2] / "docs" / "omac.1"
ROFF_S = 30


def formatted(page: str) -> str:
    """Return the page as a reader sees it; assert that groff has no warning."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    line = ["groff", "-ww", "-b", "-man", "-Tutf8", "-rLL=100n", "-P-cbou"]
    done = subprocess.run(line, input=page, capture_output=True, text=True, timeout=ROFF_S)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def plain(text: str) -> str:
    """Return the text with plain dashes and single spaces, because pages differ in those."""
    return " ".join(text.translate({0x2010: "-", 0x2212: "-"}).split())


@pytest.mark.parametrize(
    "words", some([(words,) for words in (*ALL, *GROUPS)], of=4), ids=lambda words: " ".join(words) or "omac"
)
def test_each_command_has_a_page(house: Omac, words: tuple[str, ...]) -> None:
    """The page of a command has its name, its usage and each option of its help."""
    page = formatted(house.ok("man", *words))
    text = plain(page)
    assert f"{'-'.join(('omac', *words))} - " in text
    assert " ".join(("omac", *words)) in text
    if words not in (("sandbox", "run"), ("hook", "pre-tool-use"), ("hook", "session-start"), ("hook", "session-end")):
        help_ = house.ok("help", *words)
        options = [line.split()[0].rstrip(",") for line in help_.splitlines() if line.startswith("  -")]
        assert [option for option in options if option not in text] == []


def test_examples_can_be_pasted(house: Omac) -> None:
    """Dashes and tildes are in the formatted page as they were typed."""
    page = formatted(house.ok("man", "trust"))
    assert "omac trust ~/projects/shop" in page
    assert "--json" in formatted(house.ok("man", "audit"))


def test_the_page_that_is_installed(house: Omac, pytestconfig: pytest.Config) -> None:
    """The shipped page equals the output of `omac man`; `pytest --write tests/tools/test_manual.py` updates it."""
    page = house.ok("man")
    if pytestconfig.getoption("--write"):
        SHIPPED.write_text(page)
    assert SHIPPED.read_text() == page


def test_an_unknown_command(house: Omac) -> None:
    done = house.run("man", "nosuch")
    assert (done.status, done.out) == (2, "")
    assert "try: omac help" in done.err
