"""Commands whose docstrings are their help."""

import inspect
from collections.abc import Callable

import typer

from swarepro.errors import ExitCode


def add_command(app: typer.Typer, name: str, command: Callable[..., ExitCode]) -> None:
    """Add ``command`` to ``app``; the lines of each paragraph of its docstring are joined."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(name, help=text)(command)
