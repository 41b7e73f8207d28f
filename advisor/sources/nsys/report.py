"""Nsight Systems reports (.nsys-rep): read through the user's own nsys, which alone knows them."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from advisor.errors import InputError

SUFFIXES = (".nsys-rep", ".qdrep")


def export(report: Path, shown: Path, folder: Path) -> Path:
    """The report as an SQLite export in `folder`. Raises InputError without nsys on PATH, or where
    it fails; `shown` is the path that messages name."""
    import subprocess

    nsys = shutil.which("nsys")
    target = shlex.quote(shown.with_suffix(".sqlite").name)
    by_hand = f"nsys export --type=sqlite -o {target} {shlex.quote(str(shown))}"
    if nsys is None:
        raise InputError(f"{shown}: an Nsight Systems report, which only nsys can read; export it: {by_hand}")
    if report.suffix not in SUFFIXES:  # nsys goes by the name; this may be an unpacked copy
        named = folder / "report.nsys-rep"
        named.symlink_to(report.resolve())
        report = named
    exported = folder / "report.sqlite"
    program = str(Path(nsys).absolute())
    options = ["--type=sqlite", "--force-overwrite=true", f"--output={exported}"]
    try:
        done = subprocess.run(
            [program, "export", *options, str(report.absolute())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=folder,
            check=False,
        )
    except OSError as error:
        raise InputError(
            f"{shown}: {nsys} cannot be run ({error.strerror or error}); elsewhere: {by_hand}"
        ) from error
    if done.returncode == 0 and exported.is_file():
        return exported
    output = (done.stderr.strip() or done.stdout.strip()).decode("utf-8", "replace").splitlines()
    why = output[-1].strip()[:160] if output else f"exit code {done.returncode}"
    raise InputError(
        f"{shown}: nsys could not export it ({why}); an nsys at least as new as the report can: {by_hand}"
    )
