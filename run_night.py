"""nightgate: leave it overnight, read in the morning what got faster, how surely, and why the answers are right.

The one entry point. Exit codes: 0 done, 1 a problem that the night could not work around, 2 wrong usage or
configuration.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

try:
    import typer
    from typer.exceptions import TyperException
except ModuleNotFoundError as missing:
    print(f"nightgate: {sys.executable} has no {missing.name}: `make setup`, then .venv/bin/python", file=sys.stderr)
    sys.exit(2)

CHECKOUT = Path(__file__).resolve().parent
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
MOST = 1_000_000_000  # of what is counted: beyond it is a slip of the keyboard
INTERRUPTED = 130  # what typer answers to Ctrl+C while a command is still being imported
JsonFlag = Annotated[bool, typer.Option("--json", help="Machine-readable output on standard output.")]
NightArg = Annotated[Path, typer.Argument(help="A night's folder, for example logs/first_night-20261129-220000.")]


def complain(message: str, code: int) -> int:
    """One clear line on standard error; returns the exit code."""
    for line in message.splitlines():
        print(f"nightgate: {line}", file=sys.stderr)
    return code


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A night file, for example configs/nights/first_night.yaml.")],
    hours: Annotated[float | None, typer.Option(help="Budget, instead of the file's minutes.", min=0.01)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest night of this name.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and rank what would be tried.")] = False,
    logs: Annotated[Path, typer.Option(help="Where nights are kept.")] = CHECKOUT / "logs",
    as_json: JsonFlag = False,
) -> None:
    """A night on your card and model. `run_night.py CONFIG` is short for `run_night.py run CONFIG`."""
    from agents.cli import run_command

    raise typer.Exit(run_command(config, hours, resume, dry_run, logs, as_json))


@app.command()
def report(night: NightArg, as_json: JsonFlag = False) -> None:
    """Write report.md and report.html again from the ledger, and print the report."""
    from agents.night_cli import report_command

    raise typer.Exit(report_command(night, as_json))


@app.command()
def watch(night: NightArg, as_json: JsonFlag = False) -> None:
    """Follow a running night from another terminal."""
    from agents.night_cli import watch_command

    raise typer.Exit(watch_command(night, as_json))


@app.command()
def verify(night: NightArg, as_json: JsonFlag = False) -> None:
    """Check the ledger's hash chain and schema; name the first bad line."""
    from agents.night_cli import verify_command

    raise typer.Exit(verify_command(night, as_json))


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Argument(help="A night file to check as well.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the copy test too: seconds, on the card itself.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Is this card, engine and configuration fit for a night? Each problem with its fix."""
    from agents.cli import doctor_command

    raise typer.Exit(doctor_command(config, as_json, measure))


@app.command()
def audit(
    arch: Annotated[str, typer.Option(help="gfx950, MI355X, gfx906, MI50, ... or auto: this machine's card.")] = "auto",
    model: Annotated[Path | None, typer.Option(help="A model's config.json, or its folder.")] = None,
    night: Annotated[Path | None, typer.Option(help="A night file: engine, workload and priors as it says.")] = None,
    vllm: Annotated[list[Path], typer.Option(help="A vLLM tree: unpacked wheel, checkout. May be repeated.")] = [],  # noqa: B006
    aiter: Annotated[Path | None, typer.Option(help="An AITER tree: unpacked wheel, checkout.")] = None,
    python: Annotated[str, typer.Option(help="An interpreter with Triton, for compiling kernels offline.")] = "",
    flag: Annotated[list[str], typer.Option(help="NAME=VALUE, as vllm serve gets it. May be repeated.")] = [],  # noqa: B006
    env: Annotated[list[str], typer.Option(help="NAME=VALUE of the engine's environment. May be repeated.")] = [],  # noqa: B006
    compilation: Annotated[
        list[str], typer.Option(help="NAME=VALUE inside --compilation-config. May be repeated.")
    ] = [],  # noqa: B006
    profile: Annotated[
        list[Path], typer.Option(help="A trace (.json, .json.gz, .csv) or a file of known shares. May be repeated.")
    ] = [],  # noqa: B006
    engine_log: Annotated[list[Path], typer.Option(help="The log of an engine that ran. May be repeated.")] = [],  # noqa: B006
    concurrency: Annotated[int | None, typer.Option(help="Requests at a time.", min=1, max=MOST)] = None,
    input_tokens: Annotated[int | None, typer.Option(help="Tokens of a prompt.", min=1, max=MOST)] = None,
    output_tokens: Annotated[int | None, typer.Option(help="Tokens of an answer.", min=1, max=MOST)] = None,
    reader: Annotated[list[str], typer.Option(help="Ask only this reader. May be repeated.")] = [],  # noqa: B006
    without: Annotated[list[str], typer.Option(help="Leave this reader out. May be repeated.")] = [],  # noqa: B006
    top: Annotated[int, typer.Option(help="How many opportunities to show.", min=1)] = 5,
    try_first: Annotated[
        Path | None, typer.Option(help="Write what a night can try to this file, as YAML for a night file.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every trap, fact and left-out line, those known from elsewhere too.")
    ] = False,
    llm: Annotated[str, typer.Option(help="Ask a language model too: an OpenAI-compatible URL.")] = "",
    llm_model: Annotated[str, typer.Option(help="Its name, as that server knows it.")] = "",
    llm_tokens: Annotated[int | None, typer.Option(help="The most tokens that may be used.", min=1)] = None,
    llm_price: Annotated[str, typer.Option(help="IN,OUT: the price of a million tokens.")] = "",
    llm_money: Annotated[float | None, typer.Option(help="The most to spend, by --llm-price.", min=0)] = None,
    llm_seconds: Annotated[float | None, typer.Option(help="The longest wait for it (180).", min=1)] = None,
    as_json: JsonFlag = False,
) -> None:
    """What would be tried first, and why: reads sources, tables and profiles. Needs no GPU and no server."""
    from agents.audit_cli import ModelOptions, audit_command

    work = (concurrency, input_tokens, output_tokens)
    raise typer.Exit(
        audit_command(
            arch, model, night, vllm, aiter, python, flag, env, compilation, profile, engine_log, work, reader, without,
            top, as_json, ModelOptions(llm, llm_model, llm_tokens, llm_price, llm_money, llm_seconds),
            try_first, everything,
        )
    )  # fmt: skip


@app.command()
def schema() -> None:
    """The JSON Schema of a ledger line."""
    from ledger.jsonschema import json_schema

    print(json.dumps(json_schema(), indent=2))


def main() -> None:
    """`run_night.py CONFIG` without the word run."""
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    arguments = sys.argv[1:]
    first = next((a for a in arguments if not a.startswith("-")), None)
    if first is not None and first not in known and "--help" not in arguments:
        if not any(mark in first for mark in "./\\") and not Path(first).exists() and first == arguments[0]:
            words = ", ".join(sorted(known))
            sys.exit(complain(f"{first} is neither a command ({words}) nor a night file: see --help", 2))
        sys.argv.insert(1, "run")
    try:
        code = app(standalone_mode=False)
        sys.exit(complain("stopped; nothing had begun", 1) if code == INTERRUPTED else code)
    except TyperException as error:  # wrong usage; without arguments the help has been shown
        message = " ".join(error.format_message().split())
        sys.exit(complain(f"{message.rstrip('.')}: see --help" if message else "", 2))


if __name__ == "__main__":
    main()
