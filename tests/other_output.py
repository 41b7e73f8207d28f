"""What other tools print that is not read, each in the form that its release prints, by title: the text and
the name that the refusal has to say. Written after the sources of these tools; numbers are made up."""

from __future__ import annotations

OTHER_OUTPUT: dict[str, tuple[str, str]] = {
    "rocm-smi of 2020": (
        "======================= ROCm System Management Interface =======================\n"
        "================================= Concise Info =================================\n"
        "GPU  Temp   AvgPwr  SCLK     MCLK     Fan   Perf  PwrCap  VRAM%  GPU%\n"
        "0    45.0c  90.0W   1700Mhz  1600Mhz  0.0%  auto  560.0W   12%   99%\n"
        "================================================================================\n"
        "============================= End of ROCm SMI Log ==============================\n",
        "rocm-smi",
    ),
    "rocm-smi --showuse": (
        "\n"
        "\n"
        "============================ ROCm System Management Interface ============================\n"
        "=================================== % time GPU is busy ===================================\n"
        "GPU[0]\t\t: GPU use (%): 97\n"
        "GPU[1]\t\t: GPU use (%): 0\n"
        "==========================================================================================\n"
        "================================== End of ROCm SMI Log ===================================\n",
        "rocm-smi",
    ),
    "rocm-smi --csv": (
        "device,Temperature (Sensor junction) (C),Average Graphics Package Power (W),GPU use (%),"
        "GPU Memory Allocated (VRAM%)\n"
        "card0,45.0,140.0,0,91\n"
        "card1,71.0,748.0,100,91\n",
        "rocm-smi",
    ),
    "amd-smi monitor": (
        "GPU  XCP  POWER   GPU_T   MEM_T   GFX_CLK   GFX%   MEM%   ENC%   DEC%      VRAM_USAGE\n"
        "  0    0  752 W   71 °C   55 °C  2101 MHz  100 %   43 %    N/A  0.0 %  176.2/192.0 GB\n"
        "  1    0  141 W   40 °C   33 °C   132 MHz    0 %    0 %    N/A  0.0 %    0.3/192.0 GB\n",
        "amd-smi",
    ),
    "amd-smi": (
        "+------------------------------------------------------------------------------+\n"
        "| AMD-SMI 26.0.0+37d158ab      amdgpu version: 6.14.14  ROCm version: 7.0.2    |\n"
        "| VBIOS version: 022.040.003.043.000001                                        |\n"
        "| Platform: Linux Baremetal                                                    |\n"
        "|-------------------------------------+----------------------------------------|\n"
        "| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |\n"
        "| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |\n"
        "|=====================================+========================================|\n"
        "| 0000:05:00.0    AMD Instinct MI300X | 0 %      45 °C   0           140/750 W |\n"
        "|   0       0       2        SPX/NPS1 | 0 %        N/A         283/196592 MB   |\n"
        "+-------------------------------------+----------------------------------------+\n",
        "amd-smi",
    ),
    "amd-smi metric": (
        "GPU: 0\n"
        "    USAGE:\n"
        "        GFX_ACTIVITY: 97 %\n"
        "        UMC_ACTIVITY: 31 %\n"
        "        MM_ACTIVITY: N/A\n"
        "    POWER:\n"
        "        SOCKET_POWER: 748 W\n",
        "amd-smi",
    ),
    "nvprof": (
        "==27694== NVPROF is profiling process 27694, command: python train.py\n"
        "==27694== Profiling application: python train.py\n"
        "==27694== Profiling result:\n"
        "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name\n"
        " GPU activities:   62.51%  1.11524s       301  3.7051ms  3.6928ms  3.7174ms  volta_sgemm"
        "_128x64_tn\n"
        "                   20.04%  406.30us         2  203.15us  136.13us  270.18us  [CUDA memcp"
        "y HtoD]\n"
        "      API calls:   63.25%  1.13000s       301  3.7051ms  3.6928ms  3.7174ms  cudaLaunchK"
        "ernel\n"
        "                    0.11%  4.0000us         1  4.0000us  4.0000us  4.0000us  cuDeviceGet"
        "Name\n",
        "nvprof",
    ),
    "nvprof without its first lines": (
        "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name\n"
        " GPU activities:   62.51%  1.11524s       301  3.7051ms  3.6928ms  3.7174ms  volta_sgemm"
        "_128x64_tn\n"
        "                   20.04%  406.30us         2  203.15us  136.13us  270.18us  [CUDA memcp"
        "y HtoD]\n"
        "      API calls:   63.25%  1.13000s       301  3.7051ms  3.6928ms  3.7174ms  cudaLaunchK"
        "ernel\n",
        "nvprof",
    ),
    "nvprof of CUDA 8": (
        "==9261== Profiling result:\n"
        "Time(%)      Time     Calls       Avg       Min       Max  Name\n"
        " 58.73%  737.97us       640  1.1530us  1.1200us  1.7280us  vector_add(float*, float*)\n"
        " 38.39%  482.31us       640     753ns     736ns  1.2480us  [CUDA memcpy DtoH]\n",
        "nvprof",
    ),
    "nvprof without headings": (
        " GPU activities:   62.51%  1.11524s       301  3.7051ms  3.6928ms  3.7174ms  volta_sgemm"
        "_128x64_tn\n"
        "                   20.04%  406.30us         2  203.15us  136.13us  270.18us  [CUDA memcp"
        "y HtoD]\n"
        "      API calls:   63.25%  1.13000s       301  3.7051ms  3.6928ms  3.7174ms  cudaLaunchK"
        "ernel\n",
        "nvprof",
    ),
    "nvprof --csv": (
        '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n'
        ",%,ms,,ms,ms,ms,\n"
        '"GPU activities",62.51,1115.24,301,3.7051,3.6928,3.7174,"volta_sgemm_128x64_tn"\n'
        '"API calls",63.25,1130.00,301,3.7,3.6,3.7,"cudaLaunchKernel"\n',
        "nvprof",
    ),
    "nvprof --print-gpu-trace": (
        "==6703== Profiling result:\n"
        "   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*   "
        "   Size  Throughput  SrcMemType  DstMemType           Device   Context    Stream  Name\n"
        "209.41ms  163.57us                    -               -         -         -         -  1"
        ".6000MB  9.5519GB/s    Pageable      Device  Tesla V100  1         7  [CUDA memcpy HtoD]\n"
        "210.51ms  149.92us           (20 10 1)       (32 32 1)        29  8.0000KB        0B    "
        "     -           -           -           -  Tesla V100         1         7  void matrixM"
        "ulCUDA<int=32>(float*, float*, float*, int, int) [116]\n",
        "nvprof",
    ),
    "trtexec": (
        "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=model.onnx --fp16\n"
        "[11/05/2024-10:00:00] [I] === Model Options ===\n"
        "[11/05/2024-10:00:12] [I] === Performance summary ===\n"
        "[11/05/2024-10:00:12] [I] Throughput: 812.34 qps\n"
        "[11/05/2024-10:00:12] [I] Latency: min = 1.31 ms, max = 1.9 ms, mean = 1.35 ms, median ="
        " 1.34 ms, percentile(90%) = 1.4 ms\n"
        "[11/05/2024-10:00:12] [I] Enqueue Time: min = 1.1 ms, max = 1.5 ms, mean = 1.2 ms, media"
        "n = 1.2 ms\n"
        "[11/05/2024-10:00:12] [I] GPU Compute Time: min = 1.2 ms, max = 1.3 ms, mean = 1.22 ms\n"
        "&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=model.onnx --fp16\n",
        "trtexec",
    ),
    "trtexec --dumpProfile": (
        "[07/20/2023-09:15:44] [I] === Profile (1021 iterations ) ===\n"
        "[07/20/2023-09:15:44] [I]    Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer\n"
        "[07/20/2023-09:15:44] [I]      120.11       0.1176       0.1167      10.1   Conv_0 + Relu_1\n"
        "[07/20/2023-09:15:44] [I]       98.20       0.0962       0.0960       8.3   Conv_2\n",
        "trtexec",
    ),
    "evalscope": (
        "2025-04-03 15:11:32,987 - evalscope - INFO -\n"
        "Benchmarking summary:\n"
        "+-----------------------------------+---------------------------------------------------"
        "--------------+\n"
        "| Key                               | Value                                             "
        "              |\n"
        "+===================================+==================================================="
        "==============+\n"
        "| Time taken for tests (s)          | 62.9998                                           "
        "              |\n"
        "+-----------------------------------+---------------------------------------------------"
        "--------------+\n"
        "| Number of concurrency             | 10                                                "
        "              |\n"
        "| Total requests                    | 20                                                "
        "              |\n"
        "| Succeed requests                  | 20                                                "
        "              |\n"
        "| Output token throughput (tok/s)   | 320.12                                            "
        "              |\n"
        "| Average latency (s)               | 4.1                                               "
        "              |\n"
        "| Average time to first token (s)   | 0.25                                              "
        "              |\n"
        "| Average time per output token (s) | 0.0178                                            "
        "              |\n"
        "| Average input tokens per request  | 43.1                                              "
        "              |\n"
        "+-----------------------------------+---------------------------------------------------"
        "--------------+\n"
        "Percentile results:\n"
        "+------------+----------+---------+-------------+--------------+---------------+--------"
        "--------------+\n"
        "| Percentile | TTFT (s) | ITL (s) | Latency (s) | Input tokens | Output tokens | Through"
        "put(tokens/s) |\n"
        "+------------+----------+---------+-------------+--------------+---------------+--------"
        "--------------+\n"
        "|    10%     |  0.0451  | 0.0091  |   1.1812    |      14      |      99       |       8"
        "5.6976        |\n",
        "evalscope",
    ),
    "evalscope, the table alone": (
        "Benchmarking summary:\n"
        "+-----------------------------------+------------+\n"
        "| Key                               |      Value |\n"
        "+===================================+============+\n"
        "| Output token throughput (tok/s)   |   320.12   |\n"
        "| Average time to first token (s)   |   0.25     |\n"
        "| Average time per output token (s) |   0.0178   |\n"
        "+-----------------------------------+------------+\n",
        "evalscope",
    ),
    "openvino.genai benchmark": (
        "Load time: 1543.00 ms\n"
        "Generate time: 1003.23 ± 5.12 ms\n"
        "Tokenization time: 0.51 ± 0.02 ms\n"
        "Detokenization time: 0.31 ± 0.01 ms\n"
        "TTFT: 61.92 ± 0.40 ms\n"
        "TPOT: 14.88 ± 0.10 ms/token\n"
        "Throughput: 67.20 ± 0.46 tokens/s\n",
        "openvino.genai",
    ),
    "openvino.genai llm_bench": (
        "[ INFO ] ==SUCCESS FOUND==: use_case: text_gen, model_type: llama-2-7b-chat\n"
        "[ INFO ] OV Config={'CACHE_DIR': ''}\n"
        "[ INFO ] [warm-up][P0] Input token size: 32, Output size: 128, Infer count: 128, Tokeniz"
        "ation Time: 1.23ms, Detokenization Time: 0.3ms, Generation Time: 4.21s, Latency: 32.92 m"
        "s/token\n"
        "[ INFO ] [warm-up][P0] First token latency: 85.11 ms/token, other tokens latency: 32.4 m"
        "s/token, len of tokens: 128 * 1\n",
        "openvino.genai",
    ),
    "openvino.genai llm_bench, older": (
        "[ INFO ] [warm-up] Input token size: 32, Output size: 128, Infer count: 128\n"
        "[ INFO ] [1] First token latency: 60.10 ms/token, other tokens latency: 25.10 ms/token\n",
        "openvino.genai",
    ),
    "ollama ps": (
        "NAME           ID              SIZE     PROCESSOR          UNTIL\n"
        "llama3:70b     bcfb190ca3a7    42 GB    48%/52% CPU/GPU    4 minutes from now\n",
        "the list of ollama ps",
    ),
    "llama.cpp, loading a model": (
        "load_tensors: offloading 20 repeating layers to GPU\n"
        "load_tensors: offloaded 20/41 layers to GPU\n"
        "load_tensors:        CUDA0 model buffer size =  3600.10 MiB\n",
        "the start of llama.cpp or Ollama alone",
    ),
    "Perfetto, slices of a selection": (
        "Name\tWall duration (ms)\tAvg Wall duration (ms)\tOccurrences\n"
        "aten::mm\t12.34\t0.12\t100\n"
        "cudaLaunchKernel\t4.5\t0.01\t450\n",
        "Perfetto",
    ),
    "chrome://tracing, slices of a selection": (
        "1200 items selected.\tSlices (1200)\n"
        "Title\tWall Duration\tSelf time\tAverage Wall Duration\tOccurrences\n"
        "aten::mm\t12.340 ms\t10.0 ms\t0.123 ms\t100\n"
        "Totals\t100.1 ms\t90.1 ms\t0.01 ms\t1200\n",
        "Perfetto",
    ),
    "Perfetto trace summary": (
        "metric_bundles {\n"
        "  specs {\n"
        '    id: "cpu_time"\n'
        '    dimensions_specs { name: "process_name" type: STRING }\n'
        "  }\n"
        '  row { values { double_value: 12.5 } dimension { string_value: "python" } }\n'
        "}\n",
        "Perfetto",
    ),
    "tqdm of vLLM": (
        "Processed prompts: 100%|██████████| 64/64 [00:21<00:00,  2.97it/s, est. speed input: 152"
        "0.70 toks/s, output: 380.17 toks/s]\n",
        "tqdm",
    ),
    "tqdm": (
        "Loading checkpoint shards: 100%|##########| 4/4 [00:03<00:00,  1.21it/s]\n"
        " 42%|████▏     | 21/50 [00:11<00:15,  1.84it/s]\n"
        "100%|██████████| 50/50 [00:27<00:00,  1.85it/s]\n",
        "tqdm",
    ),
    "gpustat": (
        "myhost  Mon Nov  3 10:00:01 2025  550.54.15\n"
        "[0] NVIDIA A100-SXM4-80GB | 62'C,  98 % | 70123 / 81920 MB | user(70100M)\n"
        "[1] NVIDIA A100-SXM4-80GB | 35'C,   0 % |     3 / 81920 MB |\n",
        "gpustat",
    ),
    "nsys analyze": (
        "Processing [report.sqlite] with [/opt/nvidia/reports/gpu_gaps.py]... \n"
        "\n"
        " ** GPU Gaps (gpu_gaps):\n"
        "\n"
        "The following are ranges where a GPU is idle for more than 500ms.\n"
        "\n"
        " Row#  Duration (ns)  Start (ns)   PID   Device ID  Context ID\n"
        " ----  -------------  -----------  ----  ---------  ----------\n"
        "    1    731,000,000  100,200,300  1234          0           1\n",
        "nsys analyze",
    ),
    "nsys analyze without its first lines": (
        " ** CUDA Async Memcpy with Pageable Memory (cuda_memcpy_async:rep):\n"
        "\n"
        "The following APIs use PAGEABLE memory which causes asynchronous CUDA memcpy operations to block.\n",
        "nsys analyze",
    ),
    "table of torch 1.1": (
        "----  ---------\n"
        "Name            CPU time        CUDA time            Calls        CPU total       CUDA total\n"
        "----  ---------\n"
        "mm               10.1us           12.2us              100          1.01ms           1.22ms\n",
        "before torch 1.4",
    ),
}
