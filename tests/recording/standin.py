"""A stand-in for nsys: the verbs, options, signals, files and exit codes that its documentation describes,
and the ways in which it fails, each by a key of `behaviour.json` beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT = """#!{python}
import json, os, shutil, signal, subprocess, sys, time
from pathlib import Path

here = Path(__file__).resolve().parent
how = json.loads((here / "behaviour.json").read_text())
args = sys.argv[1:]
with open(here / "calls.jsonl", "a") as calls:
    calls.write(json.dumps([args, os.environ.get("TMPDIR"), os.environ.get("ASKED")]) + "\\n")


def fail(text, code=1):
    print(text, file=sys.stderr)
    sys.exit(code)


if args == ["--version"]:
    time.sleep(how.get("version_s", 0))
    print(how.get("says", "NVIDIA Nsight Systems version " + how.get("version", "2024.4.1.61-244134") + "v0"))
    sys.exit(0)
if args[0] == "export":
    (target,) = [a.partition("=")[2] for a in args if a.startswith("--output=")]
    if how.get("export_fails"):
        fail(how["export_fails"])
    (here / "exporting").touch()
    time.sleep(how.get("export_s", 0))
    traced = (here / "traced").read_text()
    more = [path for source, path in how.get("export_with", {{}}).items() if source in traced]
    if traced == "nvtx" and how.get("light"):
        more = [how["light"]]
    shutil.copy(more[0] if more else how["export"], target)
    print("Processing 5 events: [==100%]")
    sys.exit(0)

options = {{}}
command = list(args[1:])
while command and command[0].startswith("-"):
    name, _, value = command.pop(0).partition("=")
    options[name] = value
for name in options:
    if name in how.get("unknown", []):
        fail("unrecognised option '" + name + "=" + options[name] + "'\\n\\nusage: nsys profile [<args>]")
for source in options.get("--trace", "").split(","):
    if source in how.get("unknown", []):
        fail("Illegal --trace argument '" + source + "'\\nPossible --trace values are one or more of 'cuda'")
if how.get("refuses_counters") and any(name.startswith("--gpu-metrics") for name in options):
    fail(how["refuses_counters"])
(here / "traced").write_text(options.get("--trace", ""))
if how.get("light_fails") and options.get("--trace") == "nvtx":
    fail("Failed to start the collection.")
if how.get("fails_with", "no source") in options.get("--trace", ""):
    fail("Failed to start the collection.")
if how.get("agent_fails"):
    fail(how["agent_fails"])
if how.get("daemon"):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)

scratch = Path(os.environ.get("TMPDIR", "/tmp")) / "nsys-report-1a2b.qdstrm"
stop = []
signal.signal(signal.SIGINT, lambda *_: stop.append(1))
if how.get("deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
env = dict(os.environ)
for one in options.get("--env-var", "").split(","):
    if one:
        env[one.partition("=")[0]] = one.partition("=")[2]
program = subprocess.Popen(command, env=env)
begun = time.monotonic()
delay, length = float(options.get("--delay", 0)), float(options.get("--duration", 0) or 1e9)
if "--capture-range" in options and not how.get("calls"):
    delay = 1e9  # the program never calls cudaProfilerStart
over = False
recorded = b"x" * how.get("first_bytes", 1000)
while program.poll() is None and not stop:
    now = time.monotonic() - begun
    if now > delay:
        (here / "recording").touch()
        recorded += b"x" * how.get("growth", 0)
        scratch.write_bytes(recorded)
        if now > delay + length:
            over = True
            break
    time.sleep(0.02)
began = scratch.exists() or time.monotonic() - begun > delay
if program.poll() is None:
    if over and options.get("--kill") == "none":
        program.wait()
    else:
        program.terminate()
        program.wait()
code = program.returncode if program.returncode >= 0 else 128 - program.returncode
if over and code > 128 and how.get("reports_0"):
    code = 0
if not began:
    sys.exit(code)
while how.get("deaf") or (how.get("hangs") and stop):
    time.sleep(0.1)
if how.get("disk_full"):
    scratch.unlink(missing_ok=True)
    fail("Failed to write the report: No space left on device")
output = options["--output"]
for number in range(how.get("reports", 1)):
    ending = "" if how.get("reports", 1) == 1 else "." + str(number + 1)
    Path(output + ending + how.get("ending", ".nsys-rep")).write_bytes(recorded[:100])
scratch.unlink(missing_ok=True)
print("Generated:\\n    " + output + ".nsys-rep")
sys.exit(code)
"""

IMPORTER = """#!{python}
import sys
(stream,) = [a.partition("=")[2] for a in sys.argv if a.startswith("--input-file=")]
open(stream.replace(".qdstrm", ".nsys-rep"), "w").write("report")
"""


class StandIn:
    """A folder with `nsys` that behaves as the keywords say; `exported` is what an export gives."""

    def __init__(self, folder: Path, exported: Path, **behaviour: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "nsys"
        self.path.write_text(SCRIPT.format(python=sys.executable))
        self.path.chmod(0o755)
        self.behave(**{"export": str(exported), **behaviour})

    def behave(self, **behaviour: Any) -> None:
        (self.folder / "behaviour.json").write_text(json.dumps(behaviour))

    def with_importer(self) -> None:
        program = self.folder.parent / "host-linux-x64" / "QdstrmImporter"
        program.parent.mkdir()
        program.write_text(IMPORTER.format(python=sys.executable))
        program.chmod(0o755)

    @property
    def calls(self) -> list[tuple[list[str], str, str | None]]:
        """Arguments, TMPDIR and ASKED of every call but those for the version."""
        lines = (self.folder / "calls.jsonl").read_text().splitlines()
        return [tuple(c) for c in map(json.loads, lines) if c[0] != ["--version"]]

    @property
    def profiled(self) -> list[list[str]]:
        """The options of each recording but those of ranges alone, which time a step."""
        return [args for args in self.recordings if "--trace=nvtx" not in args]

    @property
    def recordings(self) -> list[list[str]]:
        """The options of each recording."""
        return [args for args, *_ in self.calls if args[0] == "profile"]
