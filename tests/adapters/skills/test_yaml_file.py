import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omac.adapters.skills.yaml_file import (
    BYTES_MAX,
    NODES_MAX,
    YamlFileError,
    line_of,
    parse_yaml,
    read_yaml_bytes,
    scalar_texts,
)


def read(folder: Path, name: str = "omac.yaml") -> bytes:
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_yaml_bytes(name, folder_fd, f"{folder}/{name}")
    finally:
        os.close(folder_fd)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)  # the address of a socket has room for short paths only
        listener.bind(path.name)


@pytest.mark.parametrize("size", [0, 1, BYTES_MAX])
def test_a_small_file_is_read_whole(tmp_path: Path, size: int) -> None:
    """A file up to the bound is read whole, every byte of it."""
    (tmp_path / "omac.yaml").write_bytes(b"#" * size)
    assert read(tmp_path) == b"#" * size


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_bytes(b"#" * (BYTES_MAX + 1)), "larger than 256 KiB"),
        (lambda path: path.symlink_to(path.parent / "real.yaml"), "symbolic link"),
        (lambda path: path.symlink_to(path), "symbolic link"),
        (lambda path: path.symlink_to("/dev/zero"), "symbolic link"),
        (lambda path: os.mkfifo(path), "not a regular file"),
        (lambda path: path.mkdir(), "not a regular file"),
        (make_socket, "not a regular file"),
        (lambda path: None, "No such file"),
    ],
    ids=["large", "link", "loop", "device", "fifo", "folder", "socket", "missing"],
)
def test_only_a_regular_file_is_read(
    tmp_path: Path, make: Callable[[Path], object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything but a small regular file is refused, without waiting for it, and the error names the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real.yaml").write_text("name: x\n")
    make(tmp_path / "omac.yaml")
    with pytest.raises(YamlFileError) as caught:
        read(tmp_path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/omac.yaml: ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", None),
        (b"# nothing\n", None),
        (b"name: x\n", {"name": "x"}),
        (b"\xef\xbb\xbfname: x\n", {"name": "x"}),
        (b"---\nname: x\n...\n", {"name": "x"}),
        ("name: é\r\n".encode(), {"name": "é"}),
        (b"a: yes\nb: true\nc: 010\nd: ~\n", {"a": "yes", "b": True, "c": 10, "d": None}),
        (b"[1, '1', 1.5]", [1, "1", 1.5]),
        (b'{"json": ["is", "yaml"]}', {"json": ["is", "yaml"]}),
        (b"a: &x 1\nb: *x\n", {"a": 1, "b": 1}),
        (b"a: 1\n&k b: 2\nc: *k\n", {"a": 1, "b": 2, "c": "b"}),
        (b"a: &x [1]\nb: &x [2]\nc: *x\n", {"a": [1], "b": [2], "c": [2]}),
        (b"a: &x {y: 1, z: 2}\nb: {<<: *x, z: 3}\n", {"a": {"y": 1, "z": 2}, "b": {"y": 1, "z": 3}}),
        (b"a: &x {y: 1}\nb: {<<: [*x, {w: 4}]}\n", {"a": {"y": 1}, "b": {"y": 1, "w": 4}}),
        (b"a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
    ],
)
def test_plain_yaml(content: bytes, expected: object) -> None:
    """Plain data is parsed as YAML 1.2: only true and false are truth values."""
    assert parse_yaml(content, "/s/omac.yaml") == expected


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"a: [\n", 2, "not valid YAML"),
        (b'a: 1\nb: "x\nc: 1\n\n', 2, "not valid YAML"),
        (b"a: b: c\n", 1, "not valid YAML"),
        (b"a:\n\t- b\n", 2, "not valid YAML"),
        (b"a: 1\nb: 2\na: 3\n", 3, "repeated"),
        (b"s:\n  a: 1\n  'a': 3\n", 3, "repeated"),
        (b"<<: {a: 1}\n<<: {a: 2}\n", 2, "repeated"),
        (b"a: *x\n", 1, "not valid YAML: found undefined alias"),
        (b"a: &x [1, *x]\n", 1, "inside its own value"),
        (b"a: &x\n  b: {c: *x}\n", 2, "inside its own value"),
        (b"a: &x\n  <<: *x\n", 2, "inside its own value"),
        (b"a: &x 1\n*x : 2\n*x : 3\n", 1, "repeated"),
        (b"a: !!python/object/apply:os.system [id]\n", 1, "tag"),
        (b"a: !!binary aGk=\n", 1, "tag"),
        (b"a: ! b\n", 1, "tag"),
        (b"%YAML 1.1\n---\na: yes\n", 2, "directives"),
        (b"%TAG ! tag:x,2000:\n---\na: b\n", 2, "directives"),
        (b"a: 1\n---\nb: 2\n", 2, "more than one document"),
        (b"[" * 33 + b"]" * 33, 1, "32 levels"),
        (b"{a: " * 50_000, 1, "32 levels"),
        (b"- " * 100_000, 1, "32 levels"),
        (b"- a\n" * NODES_MAX, NODES_MAX, "5000 values"),
        (b"a: 1\nb: \xff\n", 2, "UTF-8"),
        (b"\xff\xfea\0", 1, "UTF-8"),
        (b"a: \0\n", None, "not valid YAML"),
        (b"\x7fELF\x02\x01\x01\0\0", None, "not valid YAML"),
        (b"a: \x1b[2J\n", None, "not valid YAML"),
        (b"{a: 1}: 2\n", 1, "not valid YAML"),
        (b"a: 2024-99-99\n", None, "cannot be read"),
        (b"a: " + b"9" * 5_000 + b"\n", None, "cannot be read"),
    ],
)
def test_hostile_or_broken_yaml(content: bytes, line: int | None, said: str) -> None:
    """Each failure is one kind of error, in one short printable line with the file, the line and the reason."""
    with pytest.raises(YamlFileError, match=said) as caught:
        parse_yaml(content, "/s/omac.yaml")
    assert caught.value.line == line
    assert str(caught.value).startswith("/s/omac.yaml, line " if line else "/s/omac.yaml: ")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_bomb_of_aliases_costs_nothing() -> None:
    """A few lines that would expand to gigabytes are refused as soon as they stand for too many values."""
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    started = time.process_time()
    with pytest.raises(YamlFileError, match="line 5: holds more than 5000 values"):
        parse_yaml(f"a0: &a0 lol\n{levels}".encode(), "/s/omac.yaml")
    merged = "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 30))
    with pytest.raises(YamlFileError, match="5000 values"):
        parse_yaml(f"a0: &a0 {{x: 1}}\n{merged}".encode(), "/s/omac.yaml")
    deep = "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 40))
    with pytest.raises(YamlFileError, match="32 levels"):
        parse_yaml(f"a0: &a0 [1]\n{deep}".encode(), "/s/omac.yaml")
    assert time.process_time() - started < 5


@given(st.binary(max_size=200) | st.text("ab:-[]{}&*!|>'\"%@#?,<=~0123456789.xeT \n\t", max_size=60).map(str.encode))
def test_any_bytes_are_data_or_a_typed_error(content: bytes) -> None:
    """Parsing any bytes returns or raises YamlFileError."""
    message = ""
    try:
        parse_yaml(content, "/s/omac.yaml")
    except YamlFileError as error:
        message = str(error)
    assert message.isprintable()


SAMPLE = b"""\
# a skill
name: echo
sidecar:
  command: [run, --fast]
  secrets:
    - name: A
    - description: |
        two
        lines
      name: b
  health: {path: x}
"""


@pytest.mark.parametrize(
    ("content", "field", "line"),
    [
        (SAMPLE, "name", 2),
        (SAMPLE, "", 2),
        (SAMPLE, "missing", 2),
        (SAMPLE, "sidecar", 3),
        (SAMPLE, "sidecar.command[1]", 4),
        (SAMPLE, "sidecar.command[7]", 4),
        (SAMPLE, "sidecar.mount", 3),
        (SAMPLE, "sidecar.secrets[0].name", 6),
        (SAMPLE, "sidecar.secrets[0].pattern", 6),
        (SAMPLE, "sidecar.secrets[1]", 7),
        (SAMPLE, "sidecar.secrets[1].name", 10),
        (SAMPLE, "sidecar.secrets[1].name.deeper[3]", 10),
        (SAMPLE, "sidecar.secrets.name", 5),
        (SAMPLE, "sidecar[0]", 3),
        (SAMPLE, "sidecar.health.path", 11),
        (b"- a\n- b\n", "name", 1),
        (b"- a\n- b\n", "[1]", 2),
        (b"text", "name", 1),
        (b"", "name", None),
        (b"a: [", "a", None),
        (b"\xff", "a", None),
        (b"a: &x 1\nb: *x\n", "b", 2),
    ],
)
def test_the_line_of_a_field(content: bytes, field: str, line: int | None) -> None:
    """A field's line is that of its key or item; a missing field has the line of the value that should hold it."""
    assert line_of(content, field) == line


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (
            b"s: {c: [run, 5, 1.50, 0x1F, 010, true, '7', ~, [1], 2024-01-02]}",
            ["run", "5", "1.50", "0x1F", "010", "true", "7", None, None, "2024-01-02"],
        ),
        (b"s: {c: 5}", None),
        (b"s: &x {c: [5.0]}\nt: {<<: *x}\n", ["5.0"]),
        (b"t: {c: [5.0]}\ns: {<<: {c: [1]}}\n", None),
        (b"[", None),
        (b"", None),
    ],
)
def test_scalars_as_they_are_written(content: bytes, texts: list[str | None] | None) -> None:
    """Numbers and the like are given as the text that the file has, where a word is expected."""
    assert scalar_texts(content, "s.c") == texts


@given(st.binary(max_size=200), st.text("ab.[]019", max_size=20))
def test_no_content_and_no_field_raises(content: bytes, field: str) -> None:
    """A search for a line never raises, so that it cannot hide the error that needs the line."""
    line = line_of(content, field)
    assert line is None or line >= 1
