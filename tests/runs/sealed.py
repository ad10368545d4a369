"""Folders whose checksums hold, whatever was done to their files: what their maker can do too."""

from everynet.system.manifest import NAME, SEALED, digest, written


def readable(path):
    """Whether a file can be read to its end before one grows tired."""
    return path.is_file() and path.stat().st_size < 1 << 28


def reseal(folder):
    """Write the manifest of a run folder anew, of the files as they are."""
    found = {name: folder / name for name in SEALED if readable(folder / name)}
    digests = {name: [digest(path.read_bytes())] for name, path in found.items()}
    (folder / NAME).write_bytes(written(digests))
    return folder


def reseal_bundle(path):
    """Write the manifest of a checkpoint anew."""
    names = sorted(p.name for p in path.iterdir() if p.name != NAME and readable(p))
    (path / NAME).write_bytes(written({n: digest((path / n).read_bytes()) for n in names}))
    return path
