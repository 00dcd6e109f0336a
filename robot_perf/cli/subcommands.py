"""The group class of commands that have commands below them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from robot_perf.errors import unknown


class Subcommands(TyperGroup):
    """Commands below a command (`devices show`): one that there is not is answered as it is at the top."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer's. Raises UsageError for a command that there is not."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            raise unknown(f"{self.name} command", args[0], self.commands)
        return super().resolve_command(ctx, args)
