"""The command line: one thin function per command, heavy imports inside, so that `--help` answers at once.

A mistyped command is answered with the nearest one, and the commands of `predict` are made when first needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import litebert
from litebert.cli.terminal import escape_what_stdout_lacks, visible
from litebert.errors import ConfigError, LitebertError, did_you_mean
from litebert.machine import share_cores

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
    """A group whose commands are made on first use; `make` and `also` are set by a subclass."""

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


app = typer.Typer(
    name="litebert",
    cls=CommandGroup,
    help="ALBERT in PyTorch: from raw text to a trained, scored and served model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A command that fails prints one message; --debug shows the traceback.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"litebert {litebert.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


# Each module adds its commands to `app`, in the order in which `--help` lists them.
from litebert.cli import (  # noqa: E402, F401
    tokenizer,
    corpus,
    pretrain,
    finetune,
    evaluate,
    calibrate,
    baseline,
    predict,
    score,
    report,
    reproduce,
    bench,
    model,
    export,
    serve,
    doctor,
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake ends with one message and exit code 2."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = os.environ.get("LITEBERT_DEBUG", "") not in ("", "0")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--debug" in arguments[:end]:
        arguments.remove("--debug")
        debug = True
    escape_what_stdout_lacks()
    share_cores()
    try:
        status = app(args=arguments, prog_name="litebert", standalone_mode=True)
    except LitebertError as error:
        _fail(str(error), debug)
    except BrokenPipeError:  # `litebert ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a forbidden folder: the user's machine, not our bug
        from litebert.files import is_full

        name = error.filename2 or error.filename  # of a copy, where it was to go
        advice = "; free some space and rerun the same command to resume" if is_full(error) else ""
        _fail(f"{name or 'file system'}: {error.strerror or error}{advice}", debug)
    sys.exit(status or 0)


def list_commands() -> dict[tuple[str, ...], Any]:
    """Every command by its words, in the order of the help: ("corpus", "build") -> the command."""
    found: dict[tuple[str, ...], Any] = {}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(app))]
    while waiting:
        words, command = waiting.pop(0)
        inner = getattr(command, "commands", None)
        if inner is None:
            found[words] = command
        else:
            waiting = [((*words, name), part) for name, part in inner.items()] + waiting
    return found


def _fail(message: str, debug: bool) -> None:
    if debug:
        raise
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), visible(message)))
    sys.exit(2)
