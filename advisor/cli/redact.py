"""``advisor redact IN OUT``: a copy of a capture that can be passed on."""

from __future__ import annotations

from pathlib import Path

from advisor.cli.settings import argument, option, takes
from advisor.config import Settings


@takes("source target check force quiet", files=(), force="Replace an existing OUT.", quiet="Say nothing.")
def redact(
    settings: Settings,
    source: Path = argument("IN"),
    target: Path = argument("OUT"),
    check: Path | None = option("FILE", "Fail where a line of FILE is still in the copy."),
) -> None:
    """Copy the nsys SQLite export IN to OUT without what is private in it; IN stays as it is.

    Environment variables, the list of processes, program output, attached files, folders, names of
    hosts and users, addresses, and what looks like a secret are taken out, wherever the export keeps
    them; tables, views and columns that no export has are dropped; ids of GPUs become others. Kernel
    names, NVTX ranges, times and devices stay: the copy is diagnosed alike.
    OUT may end in .xz or .gz.
    """
    from advisor.capture.redact import redact as run
    from advisor.cli.deliver import show
    from advisor.cli.inputs import check_exists
    from advisor.cli.progress import Progress
    from advisor.errors import InputError
    from advisor.reading import read_text
    from advisor.reports.files import check_target
    from advisor.reports.listings import redacted

    check_exists(source)
    if source.is_dir():
        raise InputError(f"{source} is a folder; name one export")
    check_target(target, settings.force, [source])
    try:
        strings = read_text(check).splitlines() if check else []
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(f"--check: {check}: cannot be read ({fault})") from fault
    with Progress(source.name) as progress:
        progress("redacting")
        done = run(source, target, settings.force, strings)
    if not settings.quiet:
        entries = [(r.what, r.table, r.count) for r in done.removed]
        sizes = (done.bytes_before, done.bytes_after)
        show(redacted(str(source), str(target), sizes, entries, done.kept))
