"""The tools as a server of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from advisor import __version__
from advisor.agents.tools import Tools, rule_page, shortened, text
from advisor.engine.load import load_rules
from advisor.errors import AdvisorError, InputError
from advisor.knowledge.package_data import page_of_docs

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

VERBS = ("diagnose", "show", "explain", "whatif", "compare", "doctor", "plan", "stats")
#: Pages of docs/ that the server provides.
PAGES = ("agents", "api", "confidence", "definitions", "json", "whatif")
_INSTRUCTIONS = (
    "Finds out why GPU inference is slow, from Nsight Systems exports, PyTorch traces and samples. "
    "Begin with diagnose; show has one finding in full, whatif what its fix would win, doctor what the "
    "capture cannot answer. Answers are bounded: left_out says what was cut, next_offset where to go on."
)


def serve(tools: Tools) -> None:
    """Answer until the input ends. Raises InputError if the SDK is missing."""
    server(tools).run("stdio")


def server(tools: Tools) -> MCPServer:
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp.server.mcpserver.exceptions import ResourceError, ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise InputError(
            "advisor mcp needs the MCP SDK; in a checkout of advisor: pip install -e '.[mcp]'"
        ) from error

    class Bounded(MCPServer):
        """Bounds the errors of the SDK as well, which repeat wrong arguments and unknown names."""

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
            try:
                return await super().call_tool(name, arguments, context)
            except ToolError as error:
                raise type(error)(shortened(str(error))) from error.__cause__

        async def read_resource(self, uri: Any, context: Any = None) -> Any:
            try:
                return await super().read_resource(uri, context)
            except ResourceError as error:
                raise type(error)(shortened(str(error))) from error.__cause__

    made = Bounded("inference-advisor", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
    for name in VERBS:
        read_only = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        tool = _tool(tools, getattr(tools, name))
        made.add_tool(tool, name=name, description=tool.__doc__, annotations=read_only)
    made.resource("advisor://rules", mime_type="text/markdown", description="All rules")(_rules)
    made.resource("advisor://rules/{code}", mime_type="text/markdown", description="One rule")(_rule)
    made.resource("advisor://docs/{page}", mime_type="text/markdown", description=", ".join(PAGES))(_doc)
    return made


def _tool(tools: Tools, verb: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """The verb, its errors raised as the SDK's tool errors, which the caller can read."""
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import CallToolResult, TextContent

    @functools.wraps(verb)
    def answered(**arguments: Any) -> CallToolResult:
        try:
            document = verb(**arguments)
        except AdvisorError as error:
            raise ToolError(tools.error_text(error, arguments.get("redact", False))) from error
        # Without indents, which would be a third of the letters.
        content = TextContent(type="text", text=text(document))
        return CallToolResult(content=[content], structured_content=document)

    return answered


def _rules() -> str:
    """Code, cause and title of every rule."""
    return "\n".join(f"- {r.code} {r.cause}: {r.title}" for r in load_rules().active)


def _rule(code: str) -> str:
    from mcp.server.mcpserver.exceptions import ResourceNotFoundError

    try:
        return rule_page(code)
    except AdvisorError as error:
        raise ResourceNotFoundError(str(error)) from error


def _doc(page: str) -> str:
    from mcp.server.mcpserver.exceptions import ResourceNotFoundError

    if page not in PAGES:
        raise ResourceNotFoundError(f"{page}: no such page; there are {', '.join(PAGES)}")
    return page_of_docs(page)
