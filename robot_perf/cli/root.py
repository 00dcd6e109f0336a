"""The group of commands: lists them from the table, imports the one that is run."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from robot_perf import __version__
from robot_perf.cli import COMMANDS
from robot_perf.cli.subcommands import Subcommands
from robot_perf.errors import ExitCode


@contextmanager
def _own_endings() -> Iterator[None]:
    """typer ends Ctrl-C with 130 and a reader that has left (`| head`) with 1, which is FAIL's code. These are ours."""
    try:
        yield
    except KeyboardInterrupt:
        # A measurement that has begun has its own answer to Ctrl-C, and keeps its steps.
        sys.stderr.write("robot-perf: interrupted; nothing was saved\n")
        sys.exit(int(ExitCode.INVALID))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(int(ExitCode.PASS))


class LazyGroup(Subcommands):
    """Lists commands from the table without importing them; imports the one that is run."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Reads the command line."""
        with _own_endings():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        with _own_endings():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Command names in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stub that carries the help line; `resolve_command` brings the real one."""
        if cmd_name not in COMMANDS:
            return None
        return typer.core.TyperCommand(cmd_name, help=COMMANDS[cmd_name][1], short_help=COMMANDS[cmd_name][1])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The real command, imported now. Raises UsageError for one that there is not."""
        name, stub, rest = super().resolve_command(ctx, args)
        if name is None or stub is None:
            return name, stub, rest
        return name, load_command(name), rest


def load_command(name: str) -> Any:
    """The click command of a table entry: the module's `app` (a group of commands) or its function `command`."""
    module = importlib.import_module(COMMANDS[name][0])
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(name=name, help=COMMANDS[name][1] + "\n\n" + (module.command.__doc__ or ""))(module.command)
    command = typer.main.get_command(app)
    command.name = name
    return command


root = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Runs a robot's policy as the robot will and says, with stated confidence, whether it keeps its deadline.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"robot-perf {__version__}")
        raise typer.Exit


@root.callback(invoke_without_command=False)
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_version
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback behind an error message."),
) -> None:
    if debug:
        os.environ["ROBOT_PERF_DEBUG"] = "1"
