"""What a capture says about itself and its machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.capture import Capture, Device
from advisor.sources.open import open_trace
from tests.builder import Export


def capture_of(export: Export, tmp_path: Path) -> Capture:
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        return trace.capture


def devices_of(export: Export, tmp_path: Path) -> tuple[Device, ...]:
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        return trace.devices


def test_tool_versions_and_times(tmp_path: Path) -> None:
    export = Export("3.16", tool_version="2024.6.2.225", start_utc_ns=17, duration=300)
    capture = capture_of(export.system(NvDriverVersion="570.1", CudaDriverVersion="12080"), tmp_path)
    assert capture.format == "nsys-sqlite"
    assert capture.producer == "NVIDIA Nsight Systems"
    assert (capture.producer_version, capture.schema_version) == ("2024.6.2.225", "3.16")
    assert (capture.start_utc_ns, capture.duration_ns) == (17, 300)
    assert (capture.driver, capture.cuda) == ("570.1", "12.8")


@pytest.mark.parametrize(
    ("raw", "read"), [("13000", "13.0"), ("12060", "12.6"), ("", None), ("12.4", "12.4")]
)
def test_cuda_version(tmp_path: Path, raw: str, read: str | None) -> None:
    assert capture_of(Export().system(CudaDriverVersion=raw), tmp_path).cuda == read


@pytest.mark.parametrize(
    ("raw", "read"),
    [("52510517", "525.105.17"), ("4708201", "470.82.01"), ("525105", "525105"), ("580.95.05", "580.95.05")],
)
def test_driver_version(tmp_path: Path, raw: str, read: str) -> None:
    assert capture_of(Export().system(NvDriverVersion=raw), tmp_path).driver == read


def test_command_line_in_order(tmp_path: Path) -> None:
    arguments = [f"a{i}" for i in range(12)]
    capture = capture_of(Export().command("python3", *arguments), tmp_path)
    assert capture.command == ("python3", *arguments)


def test_environment_variables_are_kept_by_name_only(tmp_path: Path) -> None:
    export = Export().process(1).launch(at=0)
    export.environment("HF_TOKEN", "hf_secret").environment("CUDA_LAUNCH_BLOCKING", "1")
    export.environment("ODD", "a=b=hf_secret").option("PROCESS_0:WORKING_DIR", "/home/hf_secret")
    export.command("python3", "serve.py").option("PROCESS_0:USER_NAME", "hf_secret")
    export.system(DeviceEnvironment="HF_TOKEN=hf_secret;PATH=/bin", Hostname="hf_secret")
    capture = capture_of(export, tmp_path)
    assert capture.environment_names == ("CUDA_LAUNCH_BLOCKING", "HF_TOKEN", "ODD")
    assert "hf_secret" not in capture.model_dump_json()


def test_options_repeat(tmp_path: Path) -> None:
    export = Export().traced("NvtxEvents", "Cuda", graph_mode="Node").option("RATE_HZ", "0")
    export.option("PROCESS_0:COLLECT_GPU_MEMORY_USAGE", "true").option("COLLECT_VSYNC", "false")
    export.option("GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY", "10000")
    capture = capture_of(export, tmp_path)
    assert capture.options["CAPTURE_EVENT_TYPE"] == "NvtxEvents,Cuda"
    assert capture.options["RATE_HZ"] == "0"
    assert capture.trace_sources == ("NvtxEvents", "Cuda", "COLLECT_GPU_MEMORY_USAGE")
    assert capture.graph_trace_mode == "node"
    assert capture.sample_hz == 10_000


def test_options_that_are_absent_or_odd(tmp_path: Path) -> None:
    export = Export().option("GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY", "fast")
    capture = capture_of(export, tmp_path)
    assert (capture.sample_hz, capture.graph_trace_mode) == (None, None)
    assert (capture.command, capture.trace_sources) == ((), ())


def test_only_processes_that_used_cuda_are_listed(tmp_path: Path) -> None:
    export = Export().process(1, "systemd").process(7, "python3").launch(at=0)
    for pid in range(1000, 1300):
        export.process(pid, "bash")
    assert capture_of(export, tmp_path).processes == ((7, "python3"),)


@pytest.mark.parametrize("schema", ["2.9", "3.25", "3.28"])
def test_processes_are_found_by_their_work_where_no_table_lists_them(tmp_path: Path, schema: str) -> None:
    export = Export(schema).process(9, "other").process(8, "vllm").launch(at=0)
    capture = capture_of(export.without_tables("TARGET_INFO_CUDA_STREAM"), tmp_path)
    assert capture.processes == ((8, "vllm"),)


def test_processes_that_only_called_cuda(tmp_path: Path) -> None:
    export = Export().process(8, "vllm").call("cudaMalloc", 0)
    assert capture_of(export, tmp_path).processes == ((8, "vllm"),)


def test_a_process_without_a_name(tmp_path: Path) -> None:
    export = Export().process(8).launch(at=0).without_tables("PROCESSES")
    assert capture_of(export, tmp_path).processes == ((8, ""),)


def test_rank_of_an_mpi_table(tmp_path: Path) -> None:
    export = Export().process(1).mpi_rank(3)
    assert (capture_of(export, tmp_path).rank) == 3


def test_several_ranks_in_one_file_are_no_rank(tmp_path: Path) -> None:
    export = Export("3.28").process(1).mpi_rank(0).process(2).mpi_rank(1)
    capture = capture_of(export, tmp_path)
    assert capture.rank is None
    assert capture.process_ranks == ((1, 0), (2, 1))


def test_rank_of_a_launcher(tmp_path: Path) -> None:
    export = Export().environment("OMPI_COMM_WORLD_RANK", "5")
    capture = capture_of(export.environment("OMPI_COMM_WORLD_SIZE", "8"), tmp_path)
    assert (capture.rank, capture.world_size) == (5, 8)


def test_a_rank_that_is_no_number_is_no_rank(tmp_path: Path) -> None:
    export = Export().environment("RANK", "abc").environment("WORLD_SIZE", "8")
    capture = capture_of(export, tmp_path)
    assert (capture.rank, capture.world_size) == (None, None)


def test_device_properties(tmp_path: Path) -> None:
    (device,) = devices_of(
        Export().gpu(
            id=0,
            name="NVIDIA H200",
            sm_count=132,
            bandwidth=4.8e12,
            memory=150e9,
            clock=1.98e9,
            chip="GH100",
            capability=(9, 0),
        ),
        tmp_path,
    )
    assert device == Device(
        id=0,
        name="NVIDIA H200",
        chip="GH100",
        sm_count=132,
        memory_bytes=150_000_000_000,
        bandwidth_bytes_per_s=4.8e12,
        clock_hz=1.98e9,
        compute_capability=(9, 0),
        cuda_ordinals=(0,),
    )


def test_properties_that_the_driver_does_not_tell_are_none(tmp_path: Path) -> None:
    export = Export().gpu(
        name=None, sm_count=0, bandwidth=None, memory=0, clock=None, chip="", capability=None
    )
    assert devices_of(export, tmp_path) == (Device(id=0, cuda_ordinals=(0,)),)


def test_every_listed_gpu_is_a_device_also_when_idle(tmp_path: Path) -> None:
    export = Export()
    for number in (2, 0, 3, 1):
        export.gpu(id=number)
    export.process(1).launch(at=0, device=2)
    assert [device.id for device in devices_of(export, tmp_path)] == [0, 1, 2, 3]


def test_without_a_table_of_gpus_devices_are_those_that_worked(tmp_path: Path) -> None:
    export = Export("3.25").process(1).launch(at=0, device=1).launch(at=90_000, device=0)
    assert devices_of(export, tmp_path) == (Device(id=0), Device(id=1))


def test_graph_mode_work_shows_its_device_too(tmp_path: Path) -> None:
    export = Export("3.25").process(1).device(2)
    export.graph_launch(at=0, nodes=[("a", 50, 10)], mode="graph")
    assert devices_of(export, tmp_path) == (Device(id=2),)


def test_cuda_devices_alone_tell_the_number_of_sms(tmp_path: Path) -> None:
    export = Export("3.25").process(1).cuda_device(cuda=0, gpu=4, sm_count=148)
    assert devices_of(export, tmp_path) == (Device(id=4, sm_count=148),)


def test_no_gpu_at_all(tmp_path: Path) -> None:
    assert devices_of(Export().process(1).range("a", 0, 1), tmp_path) == ()


@pytest.mark.parametrize(
    ("system", "under"),
    [
        ({"KernelVersion": "5.15.90.1-microsoft-standard-WSL2"}, True),
        ({"KernelVersion": "4.4.0-19041-Microsoft"}, True),
        ({"OsDescription": "Ubuntu 24.04 (WSL)"}, True),
        ({"NvDriverVersion": "551.23", "SoftwarePlatform": "L4X"}, True),
        ({"NvDriverVersion": "550.144.03", "SoftwarePlatform": "L4X"}, False),
        ({"NvDriverVersion": "390.87", "SoftwarePlatform": "L4X"}, False),
        ({"NvDriverVersion": "551.23"}, None),  # on Windows itself, for all that is known
        ({}, None),
    ],
)
def test_wsl_is_linux_with_a_driver_of_windows(
    system: dict[str, str], under: bool | None, tmp_path: Path
) -> None:
    assert capture_of(Export().system(**system), tmp_path).under_wsl is under


def test_an_ordinal_of_several_gpus_tells_none_to_processes_that_are_not_listed(tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES gives each process a device 0 of its own."""
    export = Export("3.25").process(100)
    for gpu, pid in ((0, 100), (1, 200)):
        export.row("TARGET_INFO_GPU", id=gpu, name="NVIDIA H200")
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=pid, numMultiprocessors=132)
    for gpu, cuda in ((None, 1), (1, None)):  # rows that say nothing
        export.row("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=cuda, pid=300, numMultiprocessors=7)
    for pid in (100, 200):
        export.process(pid).launch(at=pid)
    trace = open_trace(export.write(tmp_path / "t.sqlite"))
    assert sorted(trace.columns("kernels", ["device"])["device"].tolist()) == [0, 1]
