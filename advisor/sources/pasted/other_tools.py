"""Files and texts of tools that are not read here: what each is, and what to give in its place."""

from __future__ import annotations

import re

_NSYS = (
    "record a timeline: nsys profile --trace=cuda,nvtx -o report COMMAND, then "
    "nsys export --type=sqlite report.nsys-rep"
)
_TRACE = (
    'write the trace of the PyTorch profiler: prof.export_chrome_trace("trace.json"), then advisor trace.json'
)
_SAMPLES = (
    "record samples: nvidia-smi --format=csv --query-gpu=timestamp,index,utilization.gpu,clocks.sm,"
    "power.draw,memory.used -lms 100 > samples.csv"
)
_ROCM = "record with the PyTorch profiler, which records AMD GPUs as well, and give its trace (.json)"
_OF_SERVER = (
    "give the log of the server that it ran against, its metrics (curl -s http://HOST:PORT/metrics), or the "
    "report of vllm bench serve, sglang.bench_serving or genai-perf"
)
_OPENED = (
    "give the trace that was opened there (.json): "
    'prof.export_chrome_trace("trace.json"), then advisor trace.json'
)
_AS_FILE = (
    "give what it shows as a file: the report (.nsys-rep, .sqlite), the trace (.json), or the table as text"
)

#: Scripts of the expert system of nsys.
_EXPERT = "cuda_memcpy_a?sync|cuda_memset_sync|cuda_api_sync|gpu_gaps|gpu_time_util|dx12_mem_ops"

#: Endings of files -> what they are, and what to give in their place.
_ENDINGS = {
    (".ncu-rep", ".ncu-repz", ".nsight-cuprof-report", ".ncu-proj"): (
        "a report of Nsight Compute, which looks inside single kernels",
        _NSYS,
    ),
    (".xplane.pb",): (
        "a profile of JAX or TensorFlow (xplane)",
        "run the program under nsys, and export that",
    ),
    (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".pdf"): ("a picture", _AS_FILE),
    (".speedscope", ".speedscope.json"): (
        "a profile of py-spy (speedscope), which samples Python alone",
        _NSYS,
    ),
    (".rpd", ".rocpd"): ("a recording of ROCm", _ROCM),
    (".pftrace", ".perfetto-trace", ".perfetto"): ("a recording of Perfetto in its own format", _TRACE),
    (".nvvp", ".nvprof", ".prof"): ("a recording of nvprof or of a CPU profiler", _NSYS),
    (".perf", "perf.data"): ("a recording of perf, which samples the CPU alone", _NSYS),
}
#: The first bytes of files, likewise.
_MAGIC = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"GIF8": ".gif", b"%PDF": ".pdf", b"PERFILE2": ".perf"}
#: What a text contains, likewise; the first that is found counts.
_TEXTS = tuple(
    (re.compile(pattern, re.MULTILINE), what, way)
    for pattern, what, way in (
        (
            r"Section: GPU Speed Of Light|^==PROF== |\bsm__\w+\.\w+|\bgpu__time_duration\.|\"Metric Name\",",
            "output of Nsight Compute (ncu), which looks inside single kernels",
            _NSYS,
        ),
        (
            r"\bKernel_Name\b\"?,|\"Name\",\"Calls\",\"TotalDurationNs\""
            r"|^ROCPROFILER|^RPL: |\bKernelName\b\"?,",
            "output of rocprof",
            _ROCM,
        ),
        (
            r"^# Overhead +(?:Command|Samples)|Performance counter stats for|^# Samples: .* of event",
            "output of perf, which samples the CPU alone",
            _NSYS,
        ),
        (
            r"speedscope\.app/file-format-schema|^Thread (?:0x)?[0-9A-Fa-f]+ \((?:active|idle)|^py-spy>"
            r"|Collecting samples from 'pid:",
            "output of py-spy, which samples Python alone",
            _NSYS,
        ),
        (
            r"^[ \t]+ncalls[ \t]+tottime[ \t]+percall[ \t]+cumtime"
            r"|function calls (?:\(\d+ primitive calls\) )?in [\d.]+ seconds",
            "output of cProfile, which times Python alone",
            _TRACE,
        ),
        (
            r"\| NVIDIA-SMI \d|^GPU \d+: NVIDIA .* \(UUID:",
            "the summary of nvidia-smi, of one moment",
            _SAMPLES,
        ),
        (
            r"==\d+== (?:NVPROF|Profiling (?:application|result))|^[ \t]*(?:GPU activities|API calls): +\d"
            r"|^[ \t]*(?:Type +)?Time\(%\) +Time +Calls +Avg +Min +Max +Name"
            r'|^"(?:Type",")?Time\(%\)","Time","Calls"|^[ \t]*Start +Duration +Grid Size +Block Size',
            "output of nvprof",
            _NSYS,
        ),
        (
            r"(?i)ROCm System Management Interface|^End of ROCm SMI Log|^GPU\[\d+\]\s*: "
            r"|^device,.*(?:\(VRAM%\)|GPU use \(%\)|\(Sensor (?:edge|junction)\))",
            "output of rocm-smi, which watches AMD GPUs",
            _ROCM,
        ),
        (
            r"AMD-SMI \d|^[ \t]*GPU +(?:XCP +)?POWER +GPU_T\b|\bGFX_ACTIVITY: |^gpu,.*gfx_activity",
            "output of amd-smi, which watches AMD GPUs",
            _ROCM,
        ),
        (r"^\[\d+\] \S.* \| +\d+\W{1,3}C, +\d+ % \|", "output of gpustat, of one moment", _SAMPLES),
        (
            rf"\b(?:{_EXPERT})\.py\]|^ {{0,4}}\*\* [^(\n]{{1,100}}\((?:{_EXPERT})[:)]",
            "output of nsys analyze, which lists what its own rules found",
            "give the capture that it was made from: nsys export --type=sqlite REPORT.nsys-rep, then "
            "advisor REPORT.sqlite",
        ),
        (
            r"\bTensorRT\.trtexec\b|\[I\] (?:=== (?:Performance summary|Profile \()|GPU Compute Time: )"
            r"|\[I\] +Time ?\(ms\) +Avg\.",
            "output of trtexec",
            "record it on a timeline: nsys profile --trace=cuda,nvtx -o report trtexec ARGUMENTS, then "
            "nsys export --type=sqlite report.nsys-rep",
        ),
        (
            r"- evalscope - |^\W*Average time per output token \(s\)|^\W*Percentile\W+TTFT \(s\)"
            r"|^\W*Number of concurrency\W",
            "a report of evalscope",
            _OF_SERVER,
        ),
        (
            r"^TPOT: [\d.]+ ± [\d.]+ ms/token|openvino[._]genai|^\[ INFO \] OV Config="
            r"|^\[ INFO \] \[[\w-]+\](?:\[P\d+\])? (?:Input token size|First token latency)",
            "output of openvino.genai, which runs on CPUs and GPUs of Intel",
            "what is judged here are GPUs of NVIDIA and AMD: give a capture of one",
        ),
        (
            r"^\W*(?:Name|Title)[\t ]+Wall [Dd]uration|\bAvg Wall duration\b|^metric_bundles? *\{"
            r"|\bTrace(?:Summary|Processor)\b|\btrace_processor(?:_shell)?\b",
            "a summary of Perfetto or chrome://tracing",
            _OPENED,
        ),
        (
            r"\boffloaded \d+/\d+ layers to GPU",
            "the start of llama.cpp or Ollama alone, without a request",
            "give the log with a request's times (lines with 'eval time', of Ollama also with [GIN])",
        ),
        (
            r"^NAME +ID +SIZE +PROCESSOR\b",
            "the list of ollama ps, which tells where a model is and no times",
            "give the log of the server (journalctl -u ollama), from the start of the model on",
        ),
        (r"PyTorch CUDA memory summary", "PyTorch's summary of memory, which holds no times", _TRACE),
        (
            r"Self CPU time total:",
            "the end of a table of the PyTorch profiler without its headings",
            'print it again: print(prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=-1))',
        ),
        (
            r"^[ \t]*Name +CPU time +CUDA time +Calls +CPU total +CUDA total",
            "a table of the PyTorch profiler before torch 1.4, which has no time of an operator alone",
            "print it with torch 1.8 or newer",
        ),
        (
            r"^Traceback \(most recent call last\)|OutOfMemoryError|CUDA out of memory",
            "the error of a program",
            _NSYS,
        ),
        (
            r"^[^\n]{0,80}?\d{1,3}%\|.{0,60}\| *\d+/\d+ \[\d+:\d\d",
            "lines of a progress bar (tqdm), which say how much is done",
            _OF_SERVER,
        ),
        (
            r"^(?:INFO|WARNING|DEBUG|ERROR)[: ]|^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d",
            "a log without a line about the load of a server",
            "give the part with 'Avg generation throughput' (vLLM) or 'Decode batch' (SGLang), or a scrape "
            "of /metrics",
        ),
    )
)
_BEGINNING = 1 << 20


def other_file(name: str, head: bytes) -> tuple[str, str] | None:
    """What a file of another tool is, by the end of its name (in lower case) or its first bytes, and what to
    give in its place; None for an unknown one."""
    ending = next((e for magic, e in _MAGIC.items() if head.startswith(magic)), "")
    if b"speedscope.app/file-format" in head:
        ending = ".speedscope"
    for endings, found in _ENDINGS.items():
        if name.endswith(endings) or ending in endings:
            return found
    return None


def other_text(text: str) -> tuple[str, str] | None:
    """The same for a text, by what it contains."""
    beginning = text[:_BEGINNING]
    return next(((what, way) for pattern, what, way in _TEXTS if pattern.search(beginning)), None)
