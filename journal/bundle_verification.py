"""The verification of a bundle, by a public key alone: what it says was recorded, and nothing of it was changed."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

import msgspec

from omac.domain.kernel.refusal import Refusal, list_command, quoted
from omac.domain.kernel.undecodable import UNDECODABLE
from omac.journal.bundle import (
    CHECKPOINT,
    EVIDENCE,
    FORMAT,
    FORMATS,
    GAPS,
    LINE_BYTES_MAX,
    MANIFEST,
    SIGNATURE,
    BundleManifest,
    EventContent,
    EvidenceLine,
    GapLine,
    LeafContent,
    digest_of,
)
from omac.journal.bundle_checkpoints import BundleCheckpoints
from omac.journal.checkpoint import TEXT_MAX, Checkpoint, VerifierKey, verified, verified_note
from omac.journal.merkle import HASH_BYTES, MerkleTree, leaf_hash
from omac.journal.openings import require_committed
from omac.journal.rotation import trusted_with

MANIFEST_BYTES_MAX = 1 << 20
READ_BYTES = 1 << 20


class BundleFlaw(NamedTuple):
    """The first thing that is wrong with a file of a bundle; `line` 0: not with a line."""

    file: str
    line: int
    problem: str


class VerifiedBundle(NamedTuple):
    """The result of verifying a bundle. `manifest` None: the manifest cannot be trusted. `uncompared` is the file for
    readers where only its digest was verified, and not that it says what the evidence says; "" where both were."""

    manifest: BundleManifest | None
    events: int
    flaws: tuple[BundleFlaw, ...]
    uncompared: str = ""


Derive = Callable[[BundleManifest, Iterator[EventContent]], "bytes | None"]


class BundleError(Exception):
    """The reason why a bundle does not verify."""

    def __init__(self, file: str, problem: str, line: int = 0) -> None:
        super().__init__(problem)
        self.flaw = BundleFlaw(file, line, problem)


def verify_bundle(
    folder: str,
    keys: Sequence[VerifierKey],
    derive: Derive,
    progress: Callable[[int, int], None] = lambda _done, _whole: None,
) -> VerifiedBundle:
    """Verify the bundle in a folder. `derive` gives the SHA-256 of the data as it follows from the evidence, None where
    this omac does not derive it as the one that exported. Raises Refusal (misuse): there is no such folder, or nothing
    of an export is in it."""
    if not os.path.isdir(folder):
        raise Refusal("misuse", f"{folder} is no folder", fix=[list_command(folder)])
    names = (MANIFEST, SIGNATURE, CHECKPOINT, EVIDENCE, GAPS)
    if not any(os.path.lexists(os.path.join(folder, name)) for name in names):
        message = f"{folder} is no export: it holds no {MANIFEST}, nor another file that omac export makes"
        raise Refusal("misuse", message, fix=[f"ls -la {quoted(folder)}"])
    manifest = None
    try:
        manifest, known = _manifest(folder, keys)
        flaws = list(_of_files(folder, manifest))
        checkpoint = _checkpoint(folder, manifest, known)
        evidence = _Evidence(folder, manifest, checkpoint, known, progress)
        digest = derive(manifest, evidence.contents())
        evidence.require_whole()
        data = _data_file(manifest)
        if digest is not None and digest.hex() != manifest.files[data].sha256:
            flaws.append(BundleFlaw(data, 0, "it does not say what the evidence says"))
        return VerifiedBundle(manifest, evidence.events, tuple(flaws), data if digest is None else "")
    except BundleError as problem:
        return VerifiedBundle(manifest, 0, (problem.flaw,))


def _manifest(folder: str, keys: Sequence[VerifierKey]) -> tuple[BundleManifest, list[VerifierKey]]:
    """The manifest, and the keys that its rotations lead to: these prove themselves, before its signature does."""
    text, note = _whole(folder, MANIFEST, MANIFEST_BYTES_MAX), _whole(folder, SIGNATURE, TEXT_MAX)
    known = list(keys)
    with suppress(*UNDECODABLE):
        stated = msgspec.json.decode(text, type=_Rotations)
        known = trusted_with(keys, stated.rotations, stated.journal)
    try:
        signed = verified_note(note.decode(), *known)
    except (Refusal, UnicodeDecodeError):
        names = " or ".join(f"{key.name}+{key.id().hex()}" for key in keys)
        problem = f"the key {names} has not signed this bundle, or its signature was changed"
        raise BundleError(SIGNATURE, problem) from None
    if signed != digest_of(text):
        raise BundleError(MANIFEST, "it is not what was signed")
    try:
        manifest = msgspec.json.decode(text, type=BundleManifest)
    except UNDECODABLE as problem:
        raise BundleError(MANIFEST, f"this omac does not know its form: {problem}") from None
    if (
        manifest.format not in FORMATS
        or {EVIDENCE, GAPS, CHECKPOINT} - manifest.files.keys()
        or len(manifest.files) != 4
    ):
        raise BundleError(MANIFEST, f"it has the form {manifest.format!r}; this omac knows {FORMAT}")
    return manifest, known


class _Rotations(msgspec.Struct, frozen=True):
    """The part of a manifest that is read before its signature is verified."""

    journal: str
    rotations: tuple[str, ...] = ()


def _data_file(manifest: BundleManifest) -> str:
    (data,) = manifest.files.keys() - {EVIDENCE, GAPS, CHECKPOINT}
    return data


def _of_files(folder: str, manifest: BundleManifest) -> Iterator[BundleFlaw]:
    """Yield a flaw for each file that does not belong to the bundle. Raises BundleError for a file that differs from
    the signed manifest: files that are read afterwards are those that were signed."""
    for name in sorted(os.listdir(folder)):
        if name not in (*manifest.files, MANIFEST, SIGNATURE):
            yield BundleFlaw(name, 0, "it does not belong to the bundle")
    for name, kept in manifest.files.items():
        digest, size = hashlib.sha256(), 0
        with _opened(folder, name) as file:
            while size <= kept.bytes and (part := file.read(READ_BYTES)):  # one that is longer is not read to its end
                digest.update(part)
                size += len(part)
        if (size, digest.hexdigest()) != (kept.bytes, kept.sha256):
            raise BundleError(name, "it is not what was exported")


def _checkpoint(folder: str, manifest: BundleManifest, keys: Sequence[VerifierKey]) -> Checkpoint:
    try:
        checkpoint = verified(_whole(folder, CHECKPOINT, TEXT_MAX).decode(), *keys)
    except (Refusal, UnicodeDecodeError) as problem:
        raise BundleError(CHECKPOINT, str(problem)) from None
    stated = (manifest.journal, manifest.size, manifest.root, manifest.late)
    if stated != (checkpoint.journal, checkpoint.size, checkpoint.root.hex(), checkpoint.late):
        raise BundleError(CHECKPOINT, "it is of another tree than the manifest")
    return checkpoint


class _Evidence:
    """The lines of evidence and of gaps, in the order of positions, as they are read."""

    def __init__(
        self,
        folder: str,
        manifest: BundleManifest,
        checkpoint: Checkpoint,
        keys: Sequence[VerifierKey],
        progress: Callable[[int, int], None],
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._checkpoint = checkpoint
        self._progress = progress
        self._tree = MerkleTree()
        has_all = not manifest.filters  # in a part the events that a checkpoint counts are hashes
        self._own = BundleCheckpoints(manifest.journal, manifest.late, keys) if has_all else None
        self._is_read = False
        self.events = self._without_content = 0
        self._last = 0  # the position of the last line

    def contents(self) -> Iterator[EventContent]:
        """Yield each event. Raises BundleError."""
        decode = msgspec.json.Decoder(GapLine).decode
        with _opened(self._folder, GAPS) as file:
            gaps = ((number, decode(line)) for number, line in _lines(file, GAPS))
            gap = _next(gaps)
            with _opened(self._folder, EVIDENCE) as evidence:
                for number, text in _lines(evidence, EVIDENCE):
                    line = _decoded(text, number)
                    while gap is not None and gap[1].position < line.position:
                        self._skip(*gap)
                        gap = _next(gaps)
                    yield EventContent(line.position, self._content(line, number), line.openings)
            while gap is not None:
                self._skip(*gap)
                gap = _next(gaps)
        self._is_read = True

    def require_whole(self) -> None:
        """Raise BundleError where these are not the events that the manifest states, of the tree that was signed."""
        assert self._is_read, "whoever derives reads all"
        if (self._tree.size, self._tree.root()) != (self._checkpoint.size, self._checkpoint.root):
            raise BundleError(EVIDENCE, "it does not lead to the root of the checkpoint")
        if (self.events, self._without_content) != (self._manifest.events, self._manifest.without_content):
            raise BundleError(EVIDENCE, "it has not as many events as the manifest states")
        if not self._manifest.filters and self._last != self.events:
            raise BundleError(EVIDENCE, f"it lacks events before position {self._last}, and states no filter")

    def _skip(self, number: int, gap: GapLine) -> None:
        if gap.position != self._tree.size + 1 or len(gap.root) != HASH_BYTES:
            raise BundleError(GAPS, f"no gap begins at position {gap.position}", number)
        try:
            self._tree.append_subtree(gap.root, gap.leaves)
        except ValueError as problem:
            raise BundleError(GAPS, str(problem), number) from None

    def _content(self, line: EvidenceLine, number: int) -> LeafContent | None:
        if line.position != self._tree.size + 1:
            raise BundleError(EVIDENCE, f"position {line.position} comes after {self._tree.size}", number)
        if bool(line.content) == bool(line.leaf) or (line.leaf and len(line.leaf) != HASH_BYTES):
            raise BundleError(EVIDENCE, "it has a content or a leaf, and not both", number)
        leaf = line.leaf or leaf_hash(line.content)
        self._tree.append(leaf)
        if self._own is not None:
            self._own.append(leaf)
        self.events += 1
        self._last = line.position
        self._progress(self.events, self._manifest.events)
        if line.leaf:
            if line.openings:
                raise BundleError(EVIDENCE, "it shows fields of a content that it lacks", number)
            self._without_content += 1
            return None
        try:
            content = msgspec.msgpack.decode(line.content, type=LeafContent)
        except UNDECODABLE as problem:
            raise BundleError(EVIDENCE, f"its content is none: {problem}", number) from None
        if content.position != line.position:
            raise BundleError(EVIDENCE, f"its content is that of position {content.position}", number)
        try:
            require_committed(content.kind, content.body, line.openings)
            if self._own is not None and (flaw := self._own.problem(content.kind, content.body)):
                raise BundleError(EVIDENCE, flaw, number)
        except (ValueError, Refusal) as problem:
            raise BundleError(EVIDENCE, str(problem), number) from None
        return content


def _next(gaps: Iterator[tuple[int, GapLine]]) -> tuple[int, GapLine] | None:
    try:
        return next(gaps, None)
    except UNDECODABLE as problem:
        raise BundleError(GAPS, f"a line is none: {problem}") from None


_decode = msgspec.json.Decoder(EvidenceLine).decode


def _decoded(text: bytes, number: int) -> EvidenceLine:
    try:
        return _decode(text)
    except UNDECODABLE as problem:
        raise BundleError(EVIDENCE, f"the line is none: {problem}", number) from None


def _lines(file: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise BundleError(name, "the line is too long", number)
        yield number, line


def _whole(folder: str, name: str, bytes_max: int) -> bytes:
    with _opened(folder, name) as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise BundleError(name, f"it has more than {bytes_max} bytes")
    return content


def _opened(folder: str, name: str) -> IO[bytes]:
    """Open a file of the bundle, which may be no link. Raises BundleError."""
    try:
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise BundleError(name, "it is no regular file")
        return open(descriptor, "rb")
    except OSError as problem:
        raise BundleError(name, f"it cannot be read: {problem.strerror}") from None
