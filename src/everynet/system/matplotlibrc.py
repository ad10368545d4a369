"""The file of settings that matplotlib reads first: one that it could not read is reported.

One that is no text ends matplotlib's import with an error, and a FIFO never ends it. What everynet
draws it draws with matplotlib's own settings (see `plot.style.drawing`).
"""

import os
import stat
from pathlib import Path

from everynet.system.errors import UserError


def check_settings() -> None:
    """Refuse the settings that matplotlib would read if they are no plain file of text."""
    named = os.environ.get("MATPLOTLIBRC", "")
    home = os.environ.get("MPLCONFIGDIR") or os.path.expanduser("~/.config/matplotlib")
    for path in (Path(), *([Path(named)] if named else []), Path(home)):
        file = path / "matplotlibrc" if path.is_dir() else path
        try:
            if not stat.S_ISREG(file.stat().st_mode):
                raise ValueError("it is no plain file")
            file.read_bytes().decode()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise UserError(f"matplotlib cannot read its settings in {file}: {error}") from None
        return
