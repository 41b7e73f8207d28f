"""``advisor rules``: list, check, test and document the rules, ours and the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from advisor.cli import flags
from advisor.cli.lazy import verb_group
from advisor.cli.output import make_page, print_page, write_bytes
from advisor.config import CHOICES
from advisor.errors import RuleError, invalid_choice

app = verb_group("List, check, test and document rules.")
Directories = Annotated[list[Path] | None, typer.Argument(metavar="DIR", hidden=True)]
Rules = Annotated[
    list[Path] | None, typer.Option(metavar="DIR", help="Rules to add or replace (repeatable).")
]


@app.command("list")
def list_(rules: Rules = None) -> None:
    """One line a rule: code, cause, kind, title."""
    from advisor.engine.load import builtin_dir, load_rules

    found = load_rules(builtin_dir(), *(rules or ())).active
    page = make_page()
    width = max((len(r.cause) for r in found), default=0)
    for rule in found:
        kind = "" if rule.kind == "cause" else f" ({rule.kind})"
        page.line((rule.code, "bold"), f"  {rule.cause:<{width}}  {rule.title}{kind}")
    print_page(page)


@app.command()
def check(directories: Directories = None) -> None:
    """Check our rules, and those in DIR, against the catalogues; all problems at once."""
    from advisor.compare.catalog import EVERY_FACT
    from advisor.engine.lint import check_rules
    from advisor.engine.lint_names import Catalogues
    from advisor.engine.load import builtin_dir
    from advisor.facts.catalog import ENTITIES, IMPACT_PARTS
    from advisor.gain.catalog import catalogue
    from advisor.knowledge.files import recommendation_ids, references
    from advisor.reports.numbers import amount

    known = Catalogues(
        facts=EVERY_FACT,
        entities={name: entity.fields for name, entity in ENTITIES.items()},
        what_ifs=catalogue().whatifs,
        actions=recommendation_ids(),
        parts=IMPACT_PARTS,
        references=references(),
    )
    found = check_rules(known, builtin_dir(), *(directories or ()))
    typer.echo(f"{amount(len(found), 'rule')} checked, no problem found")


@app.command("test")
def run_cases(
    directories: Directories = None,
    engine: Annotated[
        str, typer.Option(metavar="|".join(CHOICES["engine"]), help="Inference engine.")
    ] = "python",
) -> None:
    """Run the cases beside our rules, and beside those in DIR."""
    from advisor.compare.catalog import EVERY_FACT
    from advisor.engine.cases import run_all
    from advisor.engine.load import builtin_dir, load_rules
    from advisor.reports.numbers import amount

    if engine not in CHOICES["engine"]:
        raise invalid_choice("--engine", engine, CHOICES["engine"])
    rules = load_rules(builtin_dir(), *(directories or ()))
    units = {name: spec.unit for name, spec in EVERY_FACT.items()}
    runs = run_all(rules, engine=cast("Literal['durable', 'python']", engine), units=units)
    problems = [str(problem) for run in runs for problem in run.all_problems]
    if problems:
        raise RuleError("\n".join(problems))
    cases = amount(sum(len(run.results) for run in runs), "case")
    typer.echo(f"{cases} of {amount(len(runs), 'rule')} passed")


@app.command()
def schema(output: flags.Output = None, force: flags.Force = False) -> None:
    """The JSON Schema of a rule file, for editors."""
    from advisor.model.rules import RuleSpec

    text = json.dumps(RuleSpec.model_json_schema(), indent=2)
    write_bytes(f"{text}\n".encode(), output, force)


@app.command()
def docs(rules: Rules = None, output: flags.Output = None, force: flags.Force = False) -> None:
    """The documentation of all rules in Markdown."""
    from advisor.engine.load import builtin_dir, load_rules
    from advisor.knowledge.files import references
    from advisor.reports.rule_markdown import render

    found = load_rules(builtin_dir(), *(rules or ())).active
    write_bytes(render(found, references()).encode(), output, force)
