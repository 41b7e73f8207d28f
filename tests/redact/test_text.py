"""What is private in a text, and what must stay."""

from __future__ import annotations

import pytest

from advisor.capture.redact_text import Scrubber, is_environment, is_identifying, other_gpu, variables
from advisor.capture.redact_trace import names_here

SCRUBBER = Scrubber(words=("alice", "gpu-node-17", "root"), secrets=("hunter2hunter2", "enabled"))


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/alice/proj/run.py", "/redacted/run.py"),
        ("/usr/bin/python3", "/redacted/python3"),
        ("/home/alice/acme/checkpoints", "/redacted"),
        ("/FastVideo", "/redacted"),
        ("--model=/data/llama/weights.bin", "--model=/redacted/weights.bin"),
        ("--output-dir /scratch/alice/out --n 3", "--output-dir /redacted --n 3"),
        (
            "see /tmp/q_1/streams/pid_2.log and /tmp/q_1/b.log now",
            "see /redacted/pid_2.log and /redacted/b.log now",
        ),
        ("src/acme/serve.py", "redacted/serve.py"),
        ("../alice/b/c", "redacted"),
        ("~/work/x", "/redacted"),
        ("~bob/work/x.py", "/redacted/x.py"),
        ("(/home/bob/x.py:12)", "(/redacted/x.py:12)"),
        ("/root/.config/NVIDIA Corporation/nsys-config.ini", "/redacted/nsys-config.ini"),
        ("C:\\Users\\alice\\x\\y.exe", "/redacted/y.exe"),
        (r"\\server\share\x.py", "/redacted/x.py"),
        (
            "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py",
            "/redacted/python3.11/site-packages/torch/nn/functional.py",
        ),
        ("/home/alice/engine/target/debug/server", "/redacted/debug/server"),
        ("https://user:pw@host:80/x?y=1", "https://redacted"),
        ("s3://bucket/key", "s3://redacted"),
        ("mail alice@example.com now", "mail redacted now"),
        ("10.2.3.4:8000", "redacted:8000"),
        ("node gpu-node-17 is up, says alice", "node redacted is up, says redacted"),
        ("a hf_abcdefghijklmnop b", "a redacted b"),
        ("sk-proj-ABCdef123456789", "redacted"),
        ("sk-svcacct-" + "aBcDeFgHiJkL" * 5, "redacted"),  # a key whose letters happen to hold no digit
        ("sk-admin-dashboard-cache", "sk-admin-dashboard-cache"),
        ("token=abcd1234efgh", "token=redacted"),
        ("value hunter2hunter2 here", "value redacted here"),
        (
            '{"cwd":"/home/alice","libs":["/x/y/z.so",1],"api_key":"abc"}',
            '{"cwd": "redacted", "libs": ["/redacted/z.so", 1], "api_key": "redacted"}',
        ),
        ("cd PWD=/home/alice/x; Pwd=abcdef", "cd PWD=/redacted; Pwd=redacted"),
        (r"PWD=C:\Users\alice\x\y.exe", "PWD=/redacted/y.exe"),
        ("token=abcdef12", "token=redacted"),
        ("pwd=C:/acme/work2024", "pwd=/redacted"),
        ("Linux node-a17 5.15.0-91-generic #101", "Linux redacted 5.15.0-91-generic #101"),
        ('"auth": "abcdefghij0123"', '"auth": "redacted"'),
        ("A=1\0B=2\0C=/home/alice", ""),
        ("A=1;B=2;C=3", ""),
    ],
)
def test_what_goes(text: str, clean: str) -> None:
    assert SCRUBBER.text(text) == clean
    assert SCRUBBER.text(clean) == clean


@pytest.mark.parametrize(
    ("capitals", "small", "digits", "goes"),
    [
        (4, 32, 4, True),
        (32, 4, 4, True),
        (4, 4, 32, True),
        (3, 32, 4, False),
        (32, 3, 4, False),
        (32, 4, 3, False),
    ],
)
def test_four_capitals_small_letters_and_digits_make_a_key(
    capitals: int, small: int, digits: int, goes: bool
) -> None:
    word = "A" * capitals + "b" * small + "7" * digits
    assert SCRUBBER.text(f"x {word}") == ("x redacted" if goes else f"x {word}")


def test_what_announces_a_credential_stays() -> None:
    assert SCRUBBER.text("sent Bearer abcdefgh12 to it") == "sent Bearer redacted to it"
    assert SCRUBBER.text("run --db-password pw1 now") == "run --db-password redacted now"


def test_letters_of_other_languages_stay_as_they_are() -> None:
    assert SCRUBBER.text('{"größe": "/home/alice/x"}') == '{"größe": "/redacted"}'


@pytest.mark.parametrize(
    "text",
    [
        "iteration 3",
        "execute_context_1(888_tokens)_generation_0(0)",
        "step[DECODE bs=32]",
        "num_tokens=12345678",
        "next_token: sampling",
        "token=12345678",
        "token=abcde12",
        "api_key=None",
        "secrets-in-export: it costs no time",
        "hf_hub_download",
        "hf_model_forward: hf_generate_batch_2",
        "sk_buff_alloc_page0",
        "sk-learn and sk-transformers-attention",
        "fw_LlamaForCausalLMDecoder",
        "fused_attention@plt:12",
        "libcudart.so@12.4",
        "python -u train.py -p 8080",
        "DE89370400440532013000",
        "order 4111111111111111, batch 123456789012",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute",
        "triton_poi_fused_add_mul_0d1d2d3d4d5d6d",
        "max_new_tokens: 1024",
        "decode/layer_0/mlp.down_proj",
        "meta-llama/Llama-3.1-8B",
        "Vertex/Tess/Geometry Warps in Flight [Throughput %]",
        "12.5 GB/s",
        "copies /step",
        "operator/(a, b)",
        "[kernel.kallsyms]",
        "./server",
        "malice",
        "580.159.04",
        "2024.6.2.225",
        "void foo<a/b>(x)",
        "",
        "/",
        "it is enabled",
        '{"Name": "GpuMetrics", "Fields": [{"Offset": 0}]}',
    ],
)
def test_what_stays(text: str) -> None:
    assert SCRUBBER.text(text) == text


def test_a_word_in_the_name_of_a_kernel_is_no_person() -> None:
    scrubber = Scrubber(words=("flash",), secrets=("S3cr3tValue99",))
    assert scrubber.name("flash") == "flash"
    assert scrubber.text("flash") == "redacted"
    assert scrubber.name("k_S3cr3tValue99") == "k_redacted"


def test_the_longest_of_the_known_words_goes_first() -> None:
    assert Scrubber(words=("gpu-node", "gpu-node-17")).text("gpu-node-17 is up") == "redacted is up"


def test_the_last_part_of_a_program_says_which_one_it_is() -> None:
    assert SCRUBBER.program("/opt/acme/server") == "/redacted/server"
    assert SCRUBBER.text("/opt/acme/server") == "/redacted"


def test_this_machine_has_a_short_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "node7.cluster.lan")
    assert list(names_here())[:2] == ["node7.cluster.lan", "node7"]


def test_ids_of_gpus_become_others_of_the_same_length() -> None:
    serial = "77026cf3-d79c-8f7b-9ebf-40dfd4901e3f"
    scrub = Scrubber(gpus=[serial])
    other = other_gpu(serial)
    assert scrub.text(f'{{"Uuid": "{serial}"}}') == f'{{"Uuid": "{other}"}}'
    assert (len(other), [i for i, c in enumerate(other) if c == "-"]) == (36, [8, 13, 18, 23])
    # The same card is the same in every capture, however it is written.
    assert other_gpu(serial.upper()) == other != serial
    plain = Scrubber()
    assert plain.text(f"--gpu GPU-{serial}") == f"--gpu GPU-{other}"
    assert plain.text(f"request {serial}") == f"request {serial}"


def test_environments() -> None:
    assert is_environment("A=1\0B=2\0C=3\0")
    assert is_environment("A=1\nB=2\nPATH=/bin")
    assert not is_environment("a = 1; b = 2; c")
    assert not is_environment("for (i=0; i<3; i++) {}")
    assert list(variables('HF_TOKEN="abc"')) == [("HF_TOKEN", "abc")]
    for mark in "\0\n;":
        assert dict(variables(f"A=1{mark}B=x=2{mark}C=3")) == {"A": "1", "B": "x=2", "C": "3"}
    assert list(variables("A=1;B")) == [("A", "1;B")]


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("A=1;B=2;C=3", True),
        ("A=1;B=2;", False),
        ("A=1;B=2;C=3;some;words", True),  # three of five
        ("A=1;B=2;C=3;some;words;more", False),
    ],
)
def test_three_variables_and_most_of_the_parts_make_an_environment(text: str, known: bool) -> None:
    assert is_environment(text) is known


def test_values_that_are_looked_for_everywhere_are_no_plain_words() -> None:
    """Ten letters, or six signs that are not all letters."""
    values = ("abcdefghij", "abcdefghi", "abcde1", "abcd1", "")
    assert Scrubber(secrets=values).secrets == ("abcdefghij", "abcde1")


@pytest.mark.parametrize("word", ["root", "vm", "", "12345", "Local", "Local (CLI)", "python"])
def test_common_words_name_nobody(word: str) -> None:
    assert not is_identifying(word)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("zoelind_run3", "redacted_run3"),
        ("on_gpu-17_now", "on_redacted_now"),
        ("zoelinda", "zoelinda"),
        ("max_tokens", "max_tokens"),
        ("max waits", "redacted waits"),
    ],
)
def test_a_long_name_is_found_within_another(text: str, clean: str) -> None:
    assert Scrubber(words=("zoelind", "gpu-17", "max")).text(text) == clean


@pytest.mark.parametrize("account", ["vllm", "triton", "jovyan", "azureuser"])
def test_accounts_of_images_name_nobody(account: str) -> None:
    assert not is_identifying(account)


def test_names_of_people_have_three_letters_at_least() -> None:
    assert is_identifying("bob")
    assert not is_identifying("al")
