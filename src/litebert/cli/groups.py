"""Groups of commands: a mistyped name is answered with the nearest one, and commands may be made when first needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from litebert.errors import ConfigError, did_you_mean

# These leave a folder from which the same command goes on.
RESUMABLE = ("quickstart", "pretrain", "finetune", "score", "reproduce", "corpus build")


class CommandGroup(TyperGroup):
    """`litebert predict order` -> error: no command 'order' in `litebert predict`; did you mean 'sentence-order'?"""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            hint = self._hint(name) or f"; `{ctx.command_path} --help` lists them"
            raise ConfigError(f"no command {name!r} in `{ctx.command_path}`{hint}")
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line; Ctrl-C ends it as it ends a command."""
        try:
            return super().make_context(*arguments, **options)
        except KeyboardInterrupt:
            raise _interrupted() from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C ends it with one line (typer would say nothing) and exit code 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _interrupted(f"{ctx.command_path} {ctx.invoked_subcommand}".partition(" ")[2]) from None

    def other_names(self) -> Mapping[str, str]:
        """What else people call the commands: {"ner": "tag"}."""
        inner = {name: part for name, part in self.commands.items() if isinstance(part, CommandGroup)}
        found = {name: f"{group} {name}" for group, part in inner.items() for name in part.commands}
        return found | {
            name: f"{group} {to}" for group, part in inner.items() for name, to in part.other_names().items()
        }

    def _hint(self, name: str) -> str:
        others = self.other_names()
        if name in others:
            return f"; did you mean {others[name]!r}?"
        return did_you_mean(name, self.commands)


def _interrupted(command: str = "") -> typer.Exit:
    print(f"interrupted{'; to resume, rerun the same command' * (command in RESUMABLE)}", file=sys.stderr)
    return typer.Exit(130)


class LateGroup(CommandGroup):
    """A group whose commands are made when somebody asks for them; `make` and `also` are set by a subclass."""

    make: Callable[[], dict[str, Any]]
    also: Callable[[], Mapping[str, str]]
    _made: dict[str, Any] | None = None

    @property
    def commands(self) -> Any:
        """The commands by name."""
        if self._made is None:
            self._made = type(self).make()
        return self._made

    @commands.setter
    def commands(self, given: Any) -> None:
        assert not given, "commands are made late"

    def other_names(self) -> Mapping[str, str]:
        """What else people call the commands."""
        return type(self).also()
