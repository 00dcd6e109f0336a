"""The group class of every command that has commands below it, `robot-perf` itself among them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from robot_perf.errors import unknown


class Subcommands(TyperGroup):
    """A command that there is not is answered with those that there are.

    The types are Any because typer brings its own copy of click from 0.26 on and the real one before.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's. Raises UsageError for a command that there is not."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            raise unknown("command" if ctx.parent is None else f"{self.name} command", args[0], known)
        return super().resolve_command(ctx, args)
