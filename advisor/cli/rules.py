"""``advisor rules``: list, check, test and document the rules, ours and the user's."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from advisor.cli.app import verb_group
from advisor.cli.deliver import check_output, deliver, formats, write_bytes
from advisor.cli.settings import argument, option, takes
from advisor.config import Settings
from advisor.errors import InputError, RuleError

if TYPE_CHECKING:
    from advisor.model.rules import RuleSpec

app = verb_group("List, check, test and document rules.")
Directories = list[Path] | None


@app.command("list")
@takes("rules format output force", files=(), format=formats("Kind of list."))
def list_(settings: Settings) -> None:
    """One line a rule: code, cause, title, kind."""
    from advisor.engine.load import builtin_dir, load_rules

    check_output(settings)
    deliver_list(load_rules(builtin_dir(), *settings.rules).active, settings)


def deliver_list(rules: Sequence[RuleSpec], settings: Settings) -> None:
    """The rules as they are listed, in the format asked for; JSON has each in full."""
    from advisor.reports.blocks import Report
    from advisor.reports.rule import lines

    deliver(Report(rules, lambda _: lines(rules), "Rules", many=True), settings)


@app.command()
def check(directories: Directories = argument("[DIR...]", None)) -> None:
    """Check our rules, and those in DIR, against the catalogues; all problems at once."""
    from advisor.compare.facts import EVERY_FACT
    from advisor.engine.lint import check_rules
    from advisor.engine.lint_names import Catalogues
    from advisor.engine.load import builtin_dir
    from advisor.facts.catalog import ENTITIES, IMPACT_PARTS
    from advisor.facts.spec import EVIDENCE_TABLES
    from advisor.gain.catalog import catalogue
    from advisor.knowledge.files import recommendation_ids, references
    from advisor.model.numbers import amount

    known = Catalogues(
        facts=EVERY_FACT,
        entities={name: entity.fields for name, entity in ENTITIES.items()},
        tables=EVIDENCE_TABLES,
        what_ifs=catalogue().whatifs,
        actions=recommendation_ids(),
        parts=IMPACT_PARTS,
        references=references(),
    )
    found = check_rules(known, builtin_dir(), *(directories or ()))
    typer.echo(f"{amount(len(found), 'rule')} checked, no problem found")


@app.command()
@takes("code directory fact cause force", files=())
def new(
    settings: Settings,
    code: str = argument("CODE"),
    directory: Path = option("DIR", "Folder of the two files.", Path("rules/own"), "--into"),
    fact: str = option("NAME", "The number that it asks for; see advisor facts.", "launch.idle_ratio"),
    cause: str | None = option("NAME", "Name of the cause, such as queue-full."),
) -> None:
    """Write a rule and its cases, which pass check and test, as a start."""
    from advisor.compare.facts import EVERY_FACT
    from advisor.engine.cases import new_rule
    from advisor.engine.lint_names import near
    from advisor.engine.load import CASES_SUFFIX, load_rules
    from advisor.model.facts import subject_of
    from advisor.model.rules import CODE_PATTERN

    if not re.match(CODE_PATTERN, code):
        raise InputError(f"invalid code '{code}'; expected three to eight capitals and three digits")
    name = cause or f"found-by-{code.lower()}"
    if not re.match(r"^[a-z0-9]+(-[a-z0-9]+)*$", name):
        raise InputError(
            f"--cause: invalid value '{name}'; expected words of small letters joined by hyphens"
        )
    known = load_rules()
    for taken, what in ((known.by_code.get(code), code), (known.by_cause.get(name), name)):
        if taken is not None:
            raise InputError(f"{what} belongs to our rule {taken.code} ({taken.title})")
    spec = EVERY_FACT.get(fact)
    if spec is None:
        raise InputError(f"--fact: unknown fact '{fact}'; {near(fact, EVERY_FACT)}")
    if spec.unit in ("text", "flag") or subject_of(fact) != "trace":
        raise InputError(f"--fact: invalid value '{fact}'; expected a fact that is a number of one trace")
    directory.mkdir(parents=True, exist_ok=True)
    texts = new_rule(code, name, fact, spec)
    paths = [directory / f"{code}.yaml", directory / f"{code}{CASES_SUFFIX}"]
    for path, text in zip(paths, texts, strict=True):
        write_bytes(text.encode(), path, settings.force)
    typer.echo(f"{paths[0]}\n{paths[1]}")
    typer.echo(f"Next: advisor rules check {directory}; advisor rules test {directory}")


@app.command("test")
@takes("directories engine", files=(), engine="Inference engine (default python).")
def run_cases(settings: Settings, directories: Directories = argument("[DIR...]", None)) -> None:
    """Run the cases beside our rules, and beside those in DIR."""
    from advisor.compare.facts import EVERY_FACT
    from advisor.engine.cases import run_all
    from advisor.engine.load import builtin_dir, load_rules
    from advisor.model.numbers import amount

    rules = load_rules(builtin_dir(), *(directories or ()))
    units = {name: spec.unit for name, spec in EVERY_FACT.items()}
    runs = run_all(rules, engine=settings.engine or "python", units=units)
    problems = [str(problem) for run in runs for problem in run.all_problems]
    if problems:
        raise RuleError("\n".join(problems))
    cases = amount(sum(len(run.results) for run in runs), "case")
    typer.echo(f"{cases} of {amount(len(runs), 'rule')} passed")


@app.command()
@takes("output force", files=())
def schema(settings: Settings) -> None:
    """The JSON Schema of a rule file, for editors."""
    from advisor.model.rules import RuleSpec

    text = json.dumps(RuleSpec.model_json_schema(), indent=2)
    write_bytes(f"{text}\n".encode(), settings.output, settings.force)


@app.command()
@takes("rules output force", files=())
def docs(settings: Settings) -> None:
    """The documentation of all rules in Markdown."""
    from advisor.engine.load import builtin_dir, load_rules
    from advisor.knowledge.files import references
    from advisor.reports.markdown import write
    from advisor.reports.rule import index, page

    found = load_rules(builtin_dir(), *settings.rules).active
    pages = (write(page(rule, references()), 2) for rule in sorted(found, key=lambda r: r.code))
    write_bytes("\n".join([write(index(found), 1), *pages]).encode(), settings.output, settings.force)
