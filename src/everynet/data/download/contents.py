"""Contents of files, taken out of plain files, gzip, zip and tar within limits, and checked.

A content is known by its size and the SHA-256 of its bytes after unpacking, so it does not
matter how it was packed. Nothing is unpacked by the names of an archive: a member is looked up
by the end of its name, read up to the size it must have and given back as bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from typing_extensions import Buffer

SLACK = 16 << 20
"""So many bytes of an archive may be something else than what is wanted."""
MEMBERS = 1000
"""So many members of a tar archive are looked at."""

_UNREADABLE = (
    *(EOFError, zlib.error, zipfile.BadZipFile, zipfile.LargeZipFile, tarfile.TarError),
    *(gzip.BadGzipFile, struct.error, RuntimeError, ValueError, OverflowError),
)
"""What the unpackers raise at bytes they cannot make sense of."""


class DamagedFile(Exception):
    """A file is there, but it is not what it should be; the message goes on from its name."""


@dataclass(frozen=True)
class Content:
    """The bytes of one file after unpacking, and how to recognise them."""

    name: str
    size: int
    sha256: str
    also: str = ""
    """Another name under which the same file is handed round."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name the file goes by."""
        return (self.name, self.also) if self.also else (self.name,)

    def check(self, found: bytes) -> bytes:
        """The same bytes, if they are the right ones."""
        if len(found) > self.size:
            raise DamagedFile(f"holds more than the {self.size:,} bytes of {self.name}")
        if len(found) < self.size:
            raise DamagedFile(f"is cut short: {len(found):,} of the {self.size:,} bytes")
        digest = hashlib.sha256(found).hexdigest()
        if digest != self.sha256:
            raise DamagedFile(f"holds other bytes: their SHA-256 is {digest}, not {self.sha256}")
        return found


def take(path: Path, wanted: Sequence[Content]) -> Iterator[tuple[Content, bytes]]:
    """Each wanted content of a file, checked; `DamagedFile` or `OSError` where one is not there."""
    if path.exists() and not path.is_file():
        raise DamagedFile("is not an ordinary file")  # reading a pipe might never end
    suffixes = "".join(path.suffixes[-2:])
    try:
        if suffixes.endswith((".tar.gz", ".tgz")):
            found = _from_tar(path, wanted)
        elif path.name in wanted[0].names:  # an archive that is wanted as it is
            found = _from_file(path, wanted[0])
        elif path.suffix in (".zip", ".whl", ".npz"):
            found = _from_zip(path, wanted)
        else:
            found = _from_file(path, wanted[0])
        missing = {content.name for content in wanted}
        for content, held in found:
            yield content, content.check(held)
            missing.remove(content.name)
    except _UNREADABLE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedFile(f"cannot be unpacked: {' '.join(str(error).split())}") from error
    if missing:
        raise DamagedFile(f"lacks {', '.join(sorted(missing))}")


def _from_file(path: Path, content: Content) -> Iterator[tuple[Content, bytes]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        yield content, stream.read(content.size + 1)


def _from_zip(path: Path, wanted: Sequence[Content]) -> Iterator[tuple[Content, bytes]]:
    left = _by_name(wanted)
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if content := _claim(left, member.filename):
                with archive.open(member) as stream:
                    yield content, stream.read(content.size + 1)


def _from_tar(path: Path, wanted: Sequence[Content]) -> Iterator[tuple[Content, bytes]]:
    left = _by_name(wanted)
    limit = sum(content.size for content in wanted) + SLACK
    with (
        gzip.open(path) as unpacked,
        io.BufferedReader(_Capped(unpacked, limit)) as capped,
        tarfile.open(fileobj=capped, mode="r|") as archive,
    ):
        for number, member in enumerate(archive):
            if number == MEMBERS:
                raise DamagedFile(f"holds more than {MEMBERS:,} members")
            if member.isreg() and (content := _claim(left, member.name)):
                stream = archive.extractfile(member)
                assert stream is not None, "a regular member has bytes"
                yield content, stream.read(content.size + 1)
            if not left:
                return


def _by_name(wanted: Sequence[Content]) -> dict[str, Content]:
    return {name: content for content in wanted for name in content.names}


def _claim(left: dict[str, Content], member: str) -> Content | None:
    """The content that a member holds, once; none for a member whose path leads outside."""
    path = PurePosixPath(member)
    tails = ("/".join(path.parts[-count:]) for count in range(1, len(path.parts) + 1))
    content = next((left[tail] for tail in tails if tail in left), None)
    if content is None or path.is_absolute() or ".." in path.parts:
        return None
    for name in content.names:
        del left[name]
    return content


class _Capped(io.RawIOBase):
    """A stream that gives up after so many bytes, however well they were packed."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        super().__init__()
        self.stream = stream
        self.left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        count = self.stream.readinto(buffer)
        self.left -= count
        if self.left < 0:
            raise DamagedFile("unpacks to far more than it should hold")
        return count
