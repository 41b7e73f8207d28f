"""Which verb takes which kind of input: every pair is run, and the table goes into docs/verbs.md.

    python benchmarks/matrix.py [--write]

`yes`: it answers. `one rank`: one line names the command for one rank. `capture`: one line says that the verb
needs the capture that a diagnosis came from. `-`: one line says why there is nothing to answer from.
"""

from __future__ import annotations

import contextlib
import io
import lzma
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from advisor.cli.main import main as advisor

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "verbs.md"
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"
CAPTURES = ROOT / "examples" / "captures"
#: Words before the input, words after it; `{n}` numbers the outputs.
VERBS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "diagnose": (("diagnose",), ()),
    "show": (("show",), ("1",)),
    "explain --trace": (("explain",), ("LCH101",)),
    "whatif": (("whatif", "--fix", "remove_host_gap"), ()),
    "doctor": (("doctor",), ()),
    "checklist": (("checklist", "--no-input"), ()),
    "stats": (("stats",), ()),
    "facts": (("facts",), ()),
    "compare": (("compare",), ()),
    "baseline save": (("baseline", "save", "--force", "kept"), ()),
    "export perfetto": (("export", "perfetto", "--force", "-o", "overlay.json"), ()),
    "redact": (("redact", "--force"), ("copy.sqlite",)),
}
KINDS = ("capture", "pair", "ranks", "log", "samples", "table", "saved diagnosis")
#: Verbs that take no pair: they compare or copy one file.
NO_PAIR = ("facts", "compare", "baseline save", "export perfetto", "redact", "doctor", "checklist")
_HEAD = "index, timestamp, utilization.gpu [%], clocks.sm [MHz], power.draw [W], temperature.gpu"
_LINE = "0, 2026/11/20 10:00:{:02d}.000, 8 %, 1980 MHz, 400.00 W, 60"
#: As nvidia-smi prints them, of a GPU that is all but idle.
SAMPLES = "\n".join([_HEAD, *map(_LINE.format, range(40)), ""])


def inputs(folder: Path) -> dict[str, tuple[str, ...]]:
    """The words that name each kind of input, in files made in the folder or of the repository."""
    from tests import server_logs

    graph, trace = CAPTURES / "decode_graph_bs1.sqlite.xz", CAPTURES / "kineto_decode_graph.json.gz"
    capture, log, samples = folder / "capture.sqlite", folder / "server.log", folder / "smi.csv"
    capture.write_bytes(lzma.decompress((CAPTURES / "decode_eager_bs1.sqlite.xz").read_bytes()))
    full = server_logs.Moment(running=40, waiting=20, cache=0.995)
    log.write_text(server_logs.vllm(server_logs.Server(moments=[full] * 12, preempted=9)))
    samples.write_text(SAMPLES)
    table, saved = folder / "table.csv", folder / "saved.json"
    run("stats", capture, "--format", "csv", "-o", table)
    run("diagnose", capture, "--format", "json", "-o", saved)
    return {
        "capture": (str(capture),),
        "pair": ("--together", str(graph), str(trace)),
        "ranks": (str(CAPTURES / "dlrm_8_ranks"),),
        "log": (str(log),),
        "samples": (str(samples),),
        "table": (str(table),),
        "saved diagnosis": (str(saved),),
    }


def run(*words: object) -> tuple[int, str, str]:
    """The exit code of a command in this process, what it printed, and what it said on stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = advisor([str(word) for word in words])
        out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()  # type: ignore[attr-defined]


def cell(verb: str, words: Sequence[str]) -> tuple[str, str]:
    """How a verb took an input, and its one line where it did not answer."""
    before, after = VERBS[verb]
    given = [*words, *words] if verb == "compare" else [*words]
    if verb == "explain --trace":
        given = [*(w for w in words if w.startswith("-")), "--trace", *(w for w in words if w[0] != "-")]
    code, _, said = run(*before, *given, *after)
    line = said.strip()
    if code == 0 or (verb == "compare" and "holds the same steps" in line):
        return "yes", ""
    if code != 2 or line.count("\n"):
        raise SystemExit(f"{verb} {' '.join(words)}: exit code {code}\n{line}")
    if "ranks of one job" in line and f"advisor {verb} " in line:
        return "one rank", line
    return ("capture" if "a document that advisor wrote" in line else "-"), line


def matrix() -> Iterator[tuple[str, dict[str, str]]]:
    """Each verb with how it takes each kind of input."""
    with TemporaryDirectory() as name, contextlib.chdir(name):
        known = inputs(Path(name))
        for verb in VERBS:
            kinds = [k for k in KINDS if k != "pair" or verb not in NO_PAIR]
            yield verb, {kind: cell(verb, known[kind])[0] for kind in kinds}


def table() -> str:
    """The matrix in Markdown."""
    lines = [f"| | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}"]
    for verb, found in matrix():
        lines.append(f"| `{verb}` | {' | '.join(found.get(kind, '-') for kind in KINDS)} |")
    return "\n".join(lines)


def main() -> None:
    os.environ.setdefault("XDG_STATE_HOME", "/nonexistent")
    text = table()
    if "--write" not in sys.argv[1:]:
        print(text)
        return
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
