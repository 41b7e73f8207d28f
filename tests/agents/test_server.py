"""`advisor mcp` as the official client of the protocol sees it, over standard input and output."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.agents.server import PAGES, VERBS
from advisor.agents.tools import LETTERS, size
from advisor.cli.main import main
from tests.builder import Export
from tests.captures import EXAMPLES
from tests.docs.scripts import ROOT

CAPTURE = "decode_h2d_pageable.sqlite.xz"


def ask(questions: Callable[[Any], Awaitable[Any]], root: Path = EXAMPLES, *options: str) -> Any:
    """What `questions` makes of a session with a server of its own."""
    pytest.importorskip("mcp.server.mcpserver")
    import anyio
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def session() -> Any:
        arguments = ["-m", "advisor", "mcp", "--root", str(root), *options]
        started = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)
        async with Client(stdio_client(started)) as client:
            return await questions(client)

    return anyio.run(session)


def test_an_agent_finds_its_way_from_verdict_to_fix() -> None:
    async def questions(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert {t.name for t in tools} == set(VERBS)
        assert all(t.annotations.read_only_hint and t.description for t in tools)
        found = (await client.call_tool("diagnose", {"path": CAPTURE})).structured_content
        first = found["findings"]["rows"][0]
        shown = await client.call_tool("show", {"path": CAPTURE, "code": first["code"]})
        assert not shown.is_error
        assert shown.structured_content["message"] == first["message"]
        assert sum(len(c.text) for c in shown.content) <= LETTERS
        refused = await client.call_tool("diagnose", {"path": "/etc/passwd"})
        assert refused.is_error
        assert refused.content[0].text.endswith("outside the folders that this server may read")
        rule = await client.read_resource(f"advisor://rules/{first['code']}")
        assert first["cause"] in rule.contents[0].text
        page = await client.read_resource("advisor://docs/agents")
        assert page.contents[0].text == (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")

    ask(questions)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--redact",)], ids=["by request", "always"])
def test_redaction_on_request_and_always(tmp_path: Path, options: tuple[str, ...]) -> None:
    """No text of an answer holds the path or the address that a range and the file's name give away."""
    folder = tmp_path / "home" / "carol"
    folder.mkdir(parents=True)
    export = Export().gpu().process(100)
    for i in range(6):
        export.range("load /home/carol/model for carol@example.org", i * 50_000, (i + 1) * 50_000)
        export.launch(i * 50_000, kernel="gemm", kernel_dur=20_000)
    capture = export.write(folder / "run.sqlite")
    asked = {} if options else {"redact": True}

    async def questions(client: Any) -> list[str]:
        answers = []
        for name, more in (("diagnose", {}), ("doctor", {}), ("stats", {"report": "nvtx"})):
            found = await client.call_tool(name, {"path": str(capture), **more, **asked})
            assert not found.is_error, found.content
            answers.append("".join(c.text for c in found.content) + str(found.structured_content))
        if not options:
            open_ = await client.call_tool("stats", {"path": str(capture), "report": "nvtx"})
            assert "carol@example.org" in open_.content[0].text
        return answers

    for text in ask(questions, tmp_path, *options):
        assert "carol" not in text


def test_errors_are_bounded_whoever_words_them() -> None:
    """Ours repeat names, those of the SDK the arguments and names that are wrong."""
    long = "x" * 50_000

    async def questions(client: Any) -> None:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("show", {"path": CAPTURE, "code": long}),
            ("explain", {"code": long}),
            ("whatif", {"path": CAPTURE, "fixes": [long]}),
            ("whatif", {"path": CAPTURE, "fixes": list(range(5_000))}),
            ("diagnose", {"path": CAPTURE, "phase": long}),
            ("diagnose", {"path": "../" * 20_000}),
            ("stats", {"path": CAPTURE, "report": long}),
            ("plan", {"goal": long}),
            ("diagnose", {"path": CAPTURE, "limit": long}),
            (long, {}),
        ]
        for name, arguments in calls:
            found = await client.call_tool(name, arguments)
            assert found.is_error, (name[:20], list(arguments))
            assert sum(size(c.text) for c in found.content) <= LETTERS, (name[:20], list(arguments))
        for uri in (f"advisor://rules/{long}", f"advisor://docs/{long}", f"advisor://{long}"):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert len(caught.value.error.message) <= LETTERS

    pytest.importorskip("mcp.server.mcpserver")
    from mcp import MCPError

    ask(questions)


def test_a_root_that_is_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["mcp", "--root", str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_the_pages_that_are_handed_out_ship_with_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for name in PAGES:
        assert (ROOT / "docs" / f"{name}.md").is_file()
        assert f'"docs/{name}.md" = "advisor/_data/docs/{name}.md"' in project


def test_the_skill_names_every_tool() -> None:
    text = (ROOT / "skills" / "inference-advisor" / "SKILL.md").read_text(encoding="utf-8")
    assert text.startswith("---\nname: inference-advisor\n")
    for verb in VERBS:
        assert f"`{verb}`" in text
