"""API names -> call classes."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.sources.schema import MISSING, Call, base_name, classify, inner_rows, shared_bases

NAMES = {
    Call.LAUNCH: """cudaLaunchKernel_v7000 cudaLaunchKernel_ptsz_v7000 cudaLaunchKernelExC_v11060
        cudaLaunchCooperativeKernel_v9000 cuLaunchKernel cuLaunchKernelEx cuLaunchKernelEx_ptsz
        cuLaunchCooperativeKernel hipLaunchKernel hipModuleLaunchKernel hipExtModuleLaunchKernel
        hipExtLaunchKernel cudaLaunch_v3020""",
    Call.GRAPH_LAUNCH: "cudaGraphLaunch_v10000 cudaGraphLaunch_ptsz cuGraphLaunch hipGraphLaunch",
    Call.SYNC: """cudaDeviceSynchronize_v3020 cudaStreamSynchronize_v3020 cudaEventSynchronize
        cuStreamSynchronize cuCtxSynchronize cuEventSynchronize cudaThreadSynchronize
        hipDeviceSynchronize hipStreamSynchronize cudaStreamSynchronize_ptsz_v7000""",
    Call.COPY: """cudaMemcpy_v3020 cudaMemcpyAsync_v3020 cuMemcpyHtoDAsync_v2 cuMemcpyDtoD_v2
        cudaMemcpy2DAsync cudaMemcpyToSymbol hipMemcpyWithStream hipMemcpyAsync cudaMemcpyPeer""",
    Call.MEMSET: "cudaMemset_v3020 cudaMemsetAsync_v3020 cuMemsetD8Async cuMemsetD32_v2 hipMemset",
    Call.ALLOC: """cudaMalloc_v3020 cudaMallocAsync_v11020 cudaMallocHost_v3020 cudaMallocManaged
        cudaHostAlloc_v3020 cudaHostRegister_v4000 cuMemAlloc_v2 cuMemAllocManaged cuMemCreate
        cuMemMap cuMemHostAlloc cuMemAllocAsync hipMalloc hipHostMalloc cuMemSetAccess""",
    Call.FREE: """cudaFree_v3020 cudaFreeAsync cudaFreeHost_v3020 cuMemFree_v2 cuMemUnmap
        cuMemRelease cudaHostUnregister_v4000 cuMemFreeHost hipFree hipHostFree""",
    Call.EVENT: """cudaEventRecord_v3020 cudaEventRecordWithFlags cudaStreamWaitEvent_v3020
        cudaEventQuery_v3020 cuEventRecord cuStreamWaitEvent hipEventRecord""",
    Call.MODULE: """cuLibraryLoadData cuModuleLoadData cuModuleLoadDataEx cuModuleUnload
        cuModuleLoad cuLibraryUnload hipModuleLoad cuLinkCreate_v2""",
    Call.PROFILER: "cudaProfilerStart_v4000 cudaProfilerStop_v4000 cuProfilerStart",
    Call.OTHER: """cudaLaunchHostFunc_v10000 cuLaunchHostFunc cudaGetDevice cudaStreamCreate
        cudaGraphAddMemcpyNode cudaGraphInstantiate_v12000 cudaMemGetInfo cuModuleGetLoadingMode
        cudaStreamIsCapturing_v10000 cudaFuncSetAttribute cudaEventCreate launch poll hip""",
}


@pytest.mark.parametrize(
    ("name", "call"), [(name, call) for call, names in NAMES.items() for name in names.split()]
)
def test_class_of_call(name: str, call: Call) -> None:
    assert classify(name) is call


def test_base_name_drops_versions_and_stream_variants() -> None:
    assert base_name("cudaLaunchKernel_v7000") == "cudaLaunchKernel"
    assert base_name("cudaLaunchKernel_ptsz_v7000") == "cudaLaunchKernel"
    assert base_name("cuMemcpyHtoDAsync_v2") == "cuMemcpyHtoDAsync"
    assert base_name("my_version") == "my_version"


def test_only_names_with_a_common_base_are_grouped() -> None:
    codes = shared_bases(["cudaMalloc", "cudaFree_v3020", "cudaMalloc_v3020"])
    assert codes[0] == codes[2] != MISSING
    assert codes[1] == MISSING


def test_inner_rows_need_the_same_thread_correlation_and_name_and_an_enclosing_call() -> None:
    rows = [
        # thread, correlation, base, start, end
        (1, 1, 0, 0, 100),  # outer
        (1, 1, 0, 10, 90),  # its inner layer
        (1, 1, 0, 0, 90),  # and one that begins with it
        (2, 1, 0, 10, 90),  # another thread (process) with the same id
        (1, 2, 0, 20, 80),  # another call
        (1, 1, 1, 20, 80),  # another name under the same id
        (1, 1, 0, 50, 150),  # not enclosed
        (1, MISSING, 0, 20, 80),  # no id to tell by
        (1, 1, MISSING, 20, 80),  # a name without namesakes
    ]
    thread, correlation, base, start, end = np.array(rows).T
    assert sorted(inner_rows(thread, correlation, base, start, end).tolist()) == [1, 2]
