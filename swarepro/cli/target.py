"""A file that a command writes beside its answer: tried before the work, whole or not at all."""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swarepro.errors import UsageError


class Target:
    """Takes the text of a file; without one the file stays as it is."""

    def __init__(self) -> None:
        self.text: str | None = None

    def write(self, text: str) -> None:
        """Give the whole text; it is on disk when `writing` has ended."""
        self.text = text


@contextmanager
def writing(path: Path | None, *, option: str) -> Iterator[Target]:
    """Make a file beside ``path`` now, and put it in its place at the end.

    Args:
        path: of the file; None = nothing is written.
        option: that named it, for messages.

    Raises:
        UsageError: it cannot be written; before the body, unless the disk fills up meanwhile.
    """
    target = Target()
    if path is None:
        yield target
        return
    try:
        final = path.resolve()  # of a link, the file that it leads to
        mode = final.stat().st_mode if final.exists() else stat.S_IFREG
    except (OSError, RuntimeError) as error:  # also a loop of links
        raise _unwritable(path, option, _reason(error)) from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise _unwritable(path, option, f"it is {what}")
    beside = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        beside.open("x", encoding="utf-8").close()
        if final.exists():
            if not os.access(final, os.W_OK):
                raise PermissionError("it is read-only")
            shutil.copymode(final, beside)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise _unwritable(path, option, _reason(error)) from None
    try:
        yield target
        if target.text is not None:
            try:
                beside.write_text(target.text, encoding="utf-8")
                beside.replace(final)
            except OSError as error:
                raise _unwritable(path, option, _reason(error)) from None
    finally:
        beside.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _unwritable(path: Path, option: str, why: str) -> UsageError:
    return UsageError(
        f"{option} {path} cannot be written: {why}",
        hint="name a file in a folder that exists and that you may write to",
    )
