"""domain/kernel/redaction.py: a secret that is in a command line by accident or by habit does not reach the record."""

import shlex
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import failing

from omac.domain.kernel.redaction import HIDDEN, TOTAL_MAX, WORD_MAX, redacted, speaks_of_secret

SECRET = "Zq7RvT2mXw9KpL4s"
LETTERS = st.characters(codec="ascii", categories=("L", "N"))
SECRETS = st.text(LETTERS, min_size=16, max_size=60)
# The places a secret is written to; X stands for it. A word of a list is a word of the command line.
PLACES: list[list[str]] = [
    ["curl", "--token", "X"],
    ["curl", "--token=X", "after"],
    ["curl", "-token", "X"],
    ["curl", "--api-key", "X"],
    ["curl", "--apiKey=X"],
    ["curl", "--password", "X"],
    ["curl", "--password=a X b"],
    ["curl", "--db-password", "=", "X"],
    ["curl", "--passphrase", "X"],
    ["curl", "--client-secret", "X"],
    ["curl", "--secret.key", "X"],
    ["curl", "--auth", "X"],
    ["curl", "--key", "X"],
    ["curl", "--token", "--password", "X"],
    ["env", "TOKEN=X", "run"],
    ["env", "GITHUB_TOKEN=X"],
    ["env", "AWS_SECRET_ACCESS_KEY=X/X+X="],
    ["env", "db_passwd=X"],
    ["env", "MY_CREDENTIALS=a b X"],
    ["java", "-DapiKey=X"],
    ["docker", "run", "-e", "TOKEN=X", "-eTOKEN=X", "--env=TOKEN=X"],
    ["openssl", "-passin", "pass:X"],
    ["curl", "-u", "me:X"],
    ["curl", "-u=me:X"],
    ["curl", "--user", "me:X:X"],
    ["curl", "https://me:X@example.org/"],
    ["curl", "https://X@example.org/"],
    ["curl", "https://me:X/X@example.org/path"],
    ["curl", "https://me:a'X@example.org/path"],
    ["git", "clone", "url=https://oauth2:X@example.org:443/a@b"],
    ["psql", "postgres://me:X@localhost:5432/db?sslmode=off"],
    ["curl", "https://example.org/?a=1&access_token=X&b=2"],
    ["curl", "-H", "Authorization: Bearer X"],
    ["curl", "-H", "authorization:Basic X"],
    ["curl", "-H", "Authorization:", "Bearer", "X"],
    ["curl", "-H", "Authorization:", "Bearer X"],
    ["curl", "-H", "X-Api-Key: X"],
    ["curl", "-H", "Cookie: a=b; session=X"],
    ["curl", "--header=Authorization: token X"],
    ["say", "Bearer", "X"],
    ["say", "bearer X"],
    ["sh", "-c", "curl -H 'Authorization: Bearer X' https://example.org"],
    ["sh", "-c", "export TOKEN=X; run"],
    ["sh", "-c", "run --token X"],
    ["sh", "-c", "run --token 'a X' b"],
    ["sh", "-c", "run '--token' 'a X'"],
    ["sh", "-c", 'run --token "it\'s X"'],
    ["sh", "-c", "run --token a\\ X"],
    ["sh", "-c", "run --token $(echo a X)"],
    ["sh", "-c", "run --token\n  X"],
    ["sh", "-c", 'sh -c "run --token \\"a X\\""'],
    ["sh", "-c", 'PASSWORD="a X" run'],
    ["sh", "-c", "cd /w && PASSWORD = 'a X' run"],
    ["sh", "-c", "curl -u me:X https://example.org"],
    ["curl", "-d", '{"user": "me", "token": "X"}'],
    ["curl", "-d", '{"token":"a X"}'],
    ["curl", "-d", "password => X"],
    ["say", "-----BEGIN PRIVATE KEY-----\nX\n-----END PRIVATE KEY-----"],
]
FORMS = [
    "sk-X", "sk-ant-api03-X", "sk_live_X", "ghp_X", "gho_X", "ghs_X", "github_pat_X", "glpat-X", "xoxb-X", "xoxp-X",
    "xapp-X", "AKIAX", "ASIAX", "AIzaXX", "eyJX.eyJX.X", "npm_XX", "pypi-X", "hf_X", "ya29.X", "SG.X",
]  # fmt: skip
AROUND = ["T", "say T", "a=T", "(T)", "'T'", "https://example.org/T/x", "x:T", "a,T,b", "--flag=T", "my-T"]


def with_secret(words: list[str], secret: str) -> list[str]:
    """Return the words with the secret in place of each X, except in X-Api."""
    return [word.replace("X-Api", "\0").replace("X", secret).replace("\0", "X-Api") for word in words]


def test_a_secret_does_not_survive() -> None:
    """A secret is hidden wherever its name announces it. The record shows that it was there, and the program that
    ran."""

    def check(words: list[str]) -> None:
        record = redacted(with_secret(words, SECRET))
        assert SECRET not in " ".join(record)
        assert HIDDEN in " ".join(record)
        assert record[0] == words[0]

    assert failing(check, ((words,) for words in PLACES)) == []


@given(secret=SECRETS)
def test_no_secret_survives(secret: str) -> None:
    """A secret is hidden whatever its letters are."""
    for words in PLACES:
        record = " ".join(redacted(with_secret(words, secret)))
        assert secret not in record.replace(HIDDEN, ""), words


def test_a_token_is_known_by_its_form() -> None:
    """A token is hidden by its form, whatever is around it, and even if no name announces it."""

    def check(form: str, around: str) -> None:
        token = form.replace("X", SECRET)
        record = " ".join(redacted(["run", around.replace("T", token)]))
        assert SECRET not in record
        assert HIDDEN in record

    assert failing(check, product(FORMS, AROUND)) == []


@pytest.mark.parametrize(
    "words",
    [
        ["npm", "run", "build"],
        ["claude", "--author", "ada", "--keyboard", "us", "--max-depth=3"],
        ["env", "PATH=/usr/bin:/bin", "PWD=/w", "LANG=C.UTF-8", "make"],
        ["curl", "https://example.org:8080/a/b?c=d#e"],
        ["curl", "https://registry.example.org/@scope/name"],
        ["git", "clone", "git@example.org:a/b.git"],
        ["npm", "install", "react@18", "risk-free-software"],
        ["sh", "-c", 'echo "don\'t worry" | cat > /dev/null; exit 3'],
        ["sort", "-u", "names.txt"],
        ["say", "größe", "日本語", ""],
    ],
    ids=shlex.join,
)
def test_ordinary_words_are_recorded_as_they_are(words: list[str]) -> None:
    """Ordinary words are recorded as they are: a record that hides everything is of no use."""
    assert redacted(words) == tuple(words)


def test_only_the_secret_is_hidden() -> None:
    """The words around a secret stay."""
    record = redacted(["sh", "-c", f"cd /w; run --token {SECRET} --fast", "--password", SECRET, "--fast"])
    assert record == ("sh", "-c", f"cd /w; run --token {HIDDEN} --fast", "--password", HIDDEN, "--fast")
    assert redacted(["curl", f"https://me:{SECRET}@example.org/x"]) == ("curl", f"https://{HIDDEN}@example.org/x")
    assert redacted([f"A_TOKEN={SECRET}", "run"]) == (f"A_TOKEN={HIDDEN}", "run")


@pytest.mark.parametrize("before", [0, 200, WORD_MAX - 10, WORD_MAX, 1_000])
def test_a_cut_lays_nothing_bare(before: int) -> None:
    """A secret that reaches beyond the inspected part is hidden as far as it can be seen."""
    for form in ("sk-X", "https://me:X@example.org", "--token=X", "a --token X"):
        word = f"{'a ' * (before // 2)}{form.replace('X', SECRET * 100)}"
        assert SECRET not in " ".join(redacted(["run", word]))


def test_long_words_are_cut_and_their_length_recorded() -> None:
    """A long word and a long command line are cut, and the record has their length."""
    (word,) = redacted(["x" * 5_000])
    assert word == f"{'x' * WORD_MAX}... (5000 characters)"
    many = redacted(["word"] * 100_000)
    assert sum(map(len, many)) <= TOTAL_MAX + 100
    assert many[-1] == f"... ({100_000 - len(many) + 1} more)"


@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=8))
def test_any_record_is_printable_and_bounded(words: list[str]) -> None:
    """The record is printable and bounded, even for bytes that are no text and for characters that move a terminal's
    cursor."""
    record = redacted(words)
    assert all(word.isprintable() for word in record)
    assert len("".join(record).encode()) <= 4 * (TOTAL_MAX + 100)


def test_escapes_are_shown() -> None:
    """Escape sequences are shown as text, so that no terminal obeys them."""
    assert redacted(["\x1b[2J", "a\nb", "\udcff", "\u202e"]) == ("\\x1b[2J", "a\\nb", "\\udcff", "\\u202e")


@pytest.mark.parametrize("name", ["token", "Access-Token", "GH_PAT", "apiKey", "user.password", "SIGNATURE", "--key"])
def test_names_that_speak_of_secrets(name: str) -> None:
    """The name of a secret is recognized in any case and with any separators."""
    assert speaks_of_secret(name)


@pytest.mark.parametrize("name", ["author", "path", "keyboard", "pattern", "PWD", "compass", "spin", ""])
def test_names_that_do_not(name: str) -> None:
    """A name that has such a word only as a part of another word is not the name of a secret."""
    assert not speaks_of_secret(name)
