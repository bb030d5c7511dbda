"""The clients that `scripts/clients` knows, with the versions that were last seen to work."""

from typing import Any

from clients import agents
from clients.client import Client, Drive
from clients.programs import program

COMPACTED, WINDOW, CLEARED = frozenset({"compacted"}), frozenset({"window"}), frozenset({"cleared"})

LIBRARIES = (
    "openai==3.57.0", "anthropic==2.14.0", "langchain==1.5.2", "langchain-openai==1.7.4", "openai-agents==0.24.0",
    "pydantic-ai-slim[openai]==2.68.0", "langgraph==1.2.24",
)  # fmt: skip
"""Python libraries that install in seconds and agree with each other: one environment for all of them."""


def library(name: str, family: str, package: str, drive: Drive, losses: frozenset[str], **more: Any) -> Client:
    """A client out of LIBRARIES; it speaks chat completions unless `more` says otherwise."""
    settings: dict[str, Any] = {"protocol": "chat", "quick": True, "shares": "libraries", "pip": LIBRARIES} | more
    return Client(name=name, family=family, package=package, drive=drive, losses=losses, **settings)


_LANGCHAIN = "langchain_agent.py"
_COPILOT = ("@github/copilot@1.0.102",)
_MASTRA = (
    "@mastra/core@1.71.0", "@mastra/memory@1.31.0", "@mastra/libsql@1.23.1", "@ai-sdk/openai-compatible@2.0.91",
    "zod@4.6.7", "node@22.23.3",
)  # fmt: skip
_DEEPAGENTS = (
    "deepagents@1.14.1", "langchain@1.5.14", "@langchain/core@1.4.0", "@langchain/openai@1.5.8", "zod@4.6.7",
)  # fmt: skip
_LLAMA_INDEX = ("llama-index-core==0.14.25", "llama-index-llms-openai-like==0.8.1")
_LANGCHAIN_CLASSIC = ("langchain-classic==1.0.8", "langchain-openai==1.7.3")
_STRANDS = ("strands-agents[openai]==1.62.0",)
_AGENT_FRAMEWORK = ("agent-framework-core==1.23.0", "agent-framework-openai==1.17.0")
_CAMEL = ("camel-ai==0.2.90", "mcp<2")
_PYDANTIC_SUMMARY = ("summarization-pydantic-ai==0.1.11", "pydantic-ai-slim[openai]==2.68.0")
_INSPECT = ("inspect-ai==0.3.285", "openai==3.54.0")
_AGNO = ("agno==3.1.10", "openai==3.54.0", "sqlalchemy[asyncio]")
_LANGMEM = ("langmem==0.0.30", "langchain-openai==1.7.3", "langgraph==1.2.22")
_AG2 = ("ag2[openai]==1.2.1",)
_OPENAI_AGENTS_JS = ("@openai/agents@0.20.0", "zod@4.6.7")
_STRANDS_JS = ("@strands-agents/sdk@1.19.0", "openai@6.49.0", "zod@4.6.7")
_LIVEKIT = ("livekit-agents==1.8.9", "livekit-plugins-openai==1.8.9")
_CLINE = ("@cline/core@0.0.86",)
_EXCHANGE = ("ai-exchange==0.9.9", "langfuse==2.53.9", "litellm==1.83.0")
_OPENJIUWEN = ("openjiuwen==0.1.19",)
_LANGCHAIN_JS = (
    "langchain@1.5.14", "@langchain/core@1.4.0", "@langchain/langgraph@1.7.3", "@langchain/openai@1.5.8", "zod@4.6.7",
)  # fmt: skip
_CLAUDE_CODE_ROUTER = ("@musistudio/claude-code-router@2.0.0", "@anthropic-ai/claude-code@2.1.332")
_BEEAI_JS = (
    "beeai-framework@0.1.30", "@ai-sdk/openai@3.0.141", "uuid@14.0.3", "zod@3.25.76", "--legacy-peer-deps",
)  # fmt: skip
_NANOCODER = ("@nanocollective/nanocoder@1.30.0", "node@22.23.3")
_PYDANTIC_HARNESS = ("pydantic-ai-harness==0.62.0", "pydantic-ai-slim[openai]==2.62.0")
_FAST_AGENT = ("fast-agent-mcp==0.10.48",)
_COPILOTKIT = ("@copilotkit/runtime@1.75.0", "openai@4.104.0", "@anthropic-ai/sdk@0.57.0")
_TIMBAL = ("timbal==2.8.0",)
_VERCEL_AI = ("ai@7.0.173", "@ai-sdk/openai@4.0.118", "node@22.23.3")
_TRPC_AGENT = ("trpc-agent-py==1.2.0", "openai==1.109.1", "sqlalchemy[asyncio]")
_CAYU = ("cayu==0.15.0",)
_TURNLOOP = ("turnloop==0.1.12",)
_FORGE = ("forge-guardrails==0.10.0",)
_HISTORY = (
    "openai==3.57.0", "chatcram==0.1.0", "compression-prompt==0.1.2", "contextclip==0.0.3", "contexttrim==0.1.0",
    "convopack==0.3.2", "ctxfit==0.1.1", "langstate==0.2.4", "llm-context-budget==0.1.0", "roleplay-slim==0.4.1",
    "rollmem==0.6.0", "chatfit==0.4.0", "nodus-context==0.1.0",
)  # fmt: skip
_LLMIST = ("llmist@9.7.0",)
_GOOGLE_ADK = ("google-adk==2.13.0", "litellm==1.106.2", "mcp==2.3.0")
_SWARM = ("langgraph-swarm==0.1.0", "langmem==0.0.30", "langchain-openai==1.7.4", "langgraph==1.2.24")
_TADA = ("tada-core==0.8.16",)
_GLOVE = ("glove-core@4.1.0", "zod@4.6.7")
_GOOGLE_ADK_JS = ("@google/adk@2.0.0", "openai@7.57.0")


def _history(name: str, losses: frozenset[str], compactions: int) -> Client:
    """A library that shortens a list of messages, in the chat of history_chat.py."""
    return Client(
        name=name, family=name, protocol="chat", losses=losses, compactions=compactions, tools=False, package=name,
        shares="history", pip=_HISTORY, drive=program("history_chat.py", name),
    )  # fmt: skip


CLIENTS = (
    library("openai-python", "OpenAI SDK", "openai==", program("openai_python.py"), COMPACTED),
    library(
        "anthropic-python", "Anthropic SDK", "anthropic", program("anthropic_python.py"), COMPACTED, protocol="messages"
    ),
    library(
        "anthropic-threads", "Anthropic SDK", "anthropic", program("anthropic_threads.py"), COMPACTED, compactions=2,
        protocol="messages",
    ),
    Client(
        name="openai-node", family="OpenAI SDK", protocol="responses", quick=True, losses=COMPACTED, tools=False,
        npm=("openai@7.57.0",), drive=program("openai_node.mjs"),
    ),
    Client(
        name="anthropic-node", family="Anthropic SDK", protocol="messages", quick=True, losses=WINDOW, tools=False,
        compactions=4, npm=("@anthropic-ai/sdk@1.12.0",), drive=program("anthropic_node.mjs"),
    ),
    Client(
        name="vercel-ai", family="Vercel AI SDK", protocol="responses", quick=True, losses=WINDOW, compactions=3,
        npm=_VERCEL_AI, drive=program("vercel_ai.mjs", "window"),
    ),
    Client(
        name="vercel-ai-final", family="Vercel AI SDK", protocol="responses", losses=WINDOW | CLEARED, compactions=2,
        shares="vercel-ai", npm=_VERCEL_AI, drive=program("vercel_ai.mjs", "final"),
    ),
    Client(
        name="vercel-ai-prune", family="Vercel AI SDK", protocol="responses", losses=WINDOW, compactions=2,
        shares="vercel-ai", npm=_VERCEL_AI, drive=program("vercel_ai.mjs", "prune"),
    ),
    library("langchain-summary", "LangChain", "langchain==", program(_LANGCHAIN, "summarise"), COMPACTED),
    library("langchain-clear", "LangChain", "langchain==", program(_LANGCHAIN, "clear"), CLEARED),
    library("langchain-trim", "LangChain", "langchain==", program(_LANGCHAIN, "trim"), WINDOW, compactions=3),
    Client(
        name="langchain-classic", family="LangChain", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        shares="langchain-classic", pip=_LANGCHAIN_CLASSIC, drive=program("langchain_memory.py"),
    ),
    Client(
        name="langchain-buffer", family="LangChain", protocol="chat", losses=COMPACTED, compactions=3, tools=False,
        shares="langchain-classic", pip=_LANGCHAIN_CLASSIC, drive=program("langchain_buffer.py", "list"),
    ),
    Client(
        name="langchain-buffer-text", family="LangChain", protocol="chat", losses=COMPACTED, compactions=3, tools=False,
        shares="langchain-classic", pip=_LANGCHAIN_CLASSIC, drive=program("langchain_buffer.py", "text"),
    ),
    library("langgraph", "LangGraph", "langgraph", program("langgraph_agent.py"), COMPACTED, compactions=2),
    library(
        "openai-agents", "OpenAI Agents", "openai-agents", program("openai_agents.py"), COMPACTED, protocol="responses"
    ),
    library("openai-agents-trim", "OpenAI Agents", "openai-agents", program("openai_agents_chat.py", "trim"), CLEARED,
            compactions=2),
    library("openai-agents-limit", "OpenAI Agents", "openai-agents", program("openai_agents_chat.py", "limit"), WINDOW,
            compactions=3),
    library("pydantic-ai", "pydantic-ai", "pydantic-ai", program("pydantic_ai_agent.py"), WINDOW, compactions=3),
    Client(
        name="llama-index", family="LlamaIndex", protocol="chat", losses=COMPACTED, tools=False,
        pip=_LLAMA_INDEX, drive=program("llama_index_chat.py"),
    ),
    Client(
        name="llama-index-memory", family="LlamaIndex", protocol="chat", losses=COMPACTED | WINDOW, compactions=2,
        shares="llama-index", pip=_LLAMA_INDEX, drive=program("llama_index_memory.py"),
    ),
    Client(
        name="autogen", family="AutoGen", protocol="chat", losses=COMPACTED | WINDOW,
        pip=("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"), drive=program("autogen_chat.py"),
    ),
    Client(
        name="strands", family="Strands", protocol="chat", losses=COMPACTED, shares="strands", pip=_STRANDS,
        drive=program("strands_agent.py", "summary"),
    ),
    Client(
        name="strands-window", family="Strands", protocol="chat", losses=WINDOW, compactions=3, shares="strands",
        pip=_STRANDS, drive=program("strands_agent.py", "window"),
    ),
    Client(
        name="instructor", family="Instructor", protocol="chat", losses=WINDOW, tools=False, compactions=3,
        pip=("instructor==1.17.0",), drive=program("instructor_chat.py"),
    ),
    Client(
        name="haystack", family="Haystack", protocol="chat", losses=CLEARED,
        pip=("haystack-ai==3.4.1",), drive=program("haystack_agent.py"),
    ),
    Client(
        name="semantic-kernel", family="Semantic Kernel", protocol="chat", losses=COMPACTED, compactions=3,
        pip=("semantic-kernel==1.45.0",), drive=program("semantic_kernel_chat.py"),
    ),
    Client(
        name="google-adk", family="Google ADK", protocol="chat", losses=COMPACTED, compactions=2,
        shares="google-adk", pip=_GOOGLE_ADK, drive=program("google_adk_agent.py"),
    ),
    Client(
        name="agentscope", family="AgentScope", protocol="chat", losses=COMPACTED,
        pip=("agentscope==2.0.11",), drive=program("agentscope_agent.py"),
    ),
    Client(
        name="codex", family="Codex CLI", protocol="responses", losses=COMPACTED,
        npm=("@openai/codex@0.171.0",), drive=agents.codex,
    ),
    Client(
        name="codex-openai", family="Codex CLI", protocol="responses", losses=COMPACTED, shares="codex",
        npm=("@openai/codex@0.171.0",), drive=agents.codex_openai,
    ),
    Client(
        name="claude-code", family="Claude Code", protocol="messages", losses=COMPACTED, full_tokens=190_000,
        npm=("@anthropic-ai/claude-code@2.1.332",), drive=agents.claude_code,
    ),
    Client(
        name="claude-code-manual", family="Claude Code", protocol="messages", losses=COMPACTED, full_tokens=2_000,
        compactions=2, shares="claude-code", npm=("@anthropic-ai/claude-code@2.1.332",),
        drive=agents.claude_code_manual,
    ),
    Client(
        name="opencode", family="opencode", protocol="chat", losses=COMPACTED, limit_s=600,
        npm=("opencode-ai@1.18.33",), drive=agents.opencode,
    ),
    Client(
        name="opencode-dcp", family="opencode", protocol="chat", losses=COMPACTED, compactions=2, limit_s=600,
        npm=("@tarquinen/opencode-dcp@3.1.14", "opencode-ai@1.18.33"), drive=agents.opencode_dcp,
    ),
    Client(
        name="openclaw", family="OpenClaw", protocol="chat", losses=COMPACTED, limit_s=900,
        npm=("openclaw@2026.9.6", "node@24.21.0"), drive=agents.openclaw,
    ),
    Client(
        name="qwen-code", family="qwen-code", protocol="chat", losses=COMPACTED, full_tokens=169_000,
        limit_s=600,
        npm=("@qwen-code/qwen-code@0.24.4", "node@22.23.3"), drive=agents.qwen_code,
    ),
    Client(
        name="aider", family="aider", protocol="chat", losses=COMPACTED, tools=False, limit_s=600,
        pip=("aider-chat==0.86.2",), drive=agents.aider,
    ),
    Client(
        name="pi", family="pi", protocol="chat", losses=COMPACTED,
        npm=("@earendil-works/pi-coding-agent@1.5.2", "node@22.23.3"), drive=agents.pi,
    ),
    Client(
        name="kimi-code", family="Kimi Code", protocol="chat", losses=COMPACTED, compactions=2, limit_s=600,
        npm=("@moonshot-ai/kimi-code@2.1.0", "node@22.23.3"), drive=agents.kimi_code,
    ),
    Client(
        name="hermes", family="Hermes Agent", protocol="chat", losses=COMPACTED, full_tokens=90_000, limit_s=600,
        pip=("hermes-agent==0.19.0",), drive=agents.hermes,
    ),
    Client(
        name="copilot", family="GitHub Copilot CLI", protocol="chat", losses=COMPACTED, shares="copilot",
        npm=_COPILOT, drive=agents.copilot("openai", "completions", "scripted"),
    ),
    Client(
        name="copilot-responses", family="GitHub Copilot CLI", protocol="responses", losses=COMPACTED,
        shares="copilot", npm=_COPILOT, drive=agents.copilot("openai", "responses", "gpt-5.1"),
    ),
    Client(
        name="copilot-messages", family="GitHub Copilot CLI", protocol="messages", losses=COMPACTED,
        shares="copilot", npm=_COPILOT, drive=agents.copilot("anthropic", "completions", "claude-sonnet-4-5"),
    ),
    Client(
        name="continue", family="Continue CLI", protocol="chat", losses=COMPACTED, limit_s=600,
        npm=("@continuedev/cli@1.5.47",), drive=agents.continue_cli,
    ),
    Client(
        name="mastra", family="Mastra", protocol="chat", losses=COMPACTED | WINDOW, npm=_MASTRA,
        drive=program("mastra_agent.mjs", "notes"),
    ),
    Client(
        name="deepagents", family="Deep Agents", protocol="chat", losses=COMPACTED, npm=_DEEPAGENTS,
        drive=program("deep_agent.mjs"),
    ),
    Client(
        name="agno", family="Agno", protocol="chat", losses=COMPACTED | WINDOW, compactions=3,
        pip=_AGNO, drive=program("agno_agent.py"),
    ),
    Client(
        name="langmem", family="LangMem", protocol="chat", losses=COMPACTED,
        pip=_LANGMEM, drive=program("langmem_agent.py"),
    ),
    Client(
        name="agent-framework", family="Microsoft Agent Framework", protocol="responses", losses=COMPACTED,
        compactions=2, shares="agent-framework", pip=_AGENT_FRAMEWORK, drive=program("agent_framework_agent.py"),
    ),
    Client(
        name="agent-framework-window", family="Microsoft Agent Framework", protocol="chat", losses=WINDOW,
        compactions=3, shares="agent-framework", pip=_AGENT_FRAMEWORK,
        drive=program("agent_framework_chat.py", "window"),
    ),
    Client(
        name="agent-framework-budget", family="Microsoft Agent Framework", protocol="chat", losses=COMPACTED,
        compactions=3, shares="agent-framework", pip=_AGENT_FRAMEWORK,
        drive=program("agent_framework_chat.py", "budget"),
    ),
    Client(
        name="camel", family="CAMEL", protocol="chat", losses=WINDOW, compactions=3, shares="camel", pip=_CAMEL,
        drive=program("camel_agent.py", "window"),
    ),
    Client(
        name="camel-summary", family="CAMEL", protocol="chat", losses=COMPACTED, compactions=2, shares="camel",
        pip=_CAMEL, drive=program("camel_agent.py", "summary"),
    ),
    Client(
        name="crewai", family="CrewAI", protocol="chat", losses=COMPACTED, compactions=2, refused=True,
        pip=("crewai==1.15.30",), drive=program("crewai_agent.py"),
    ),
    Client(
        name="griptape", family="Griptape", protocol="chat", losses=COMPACTED, compactions=3, tools=False,
        pip=("griptape[drivers-prompt-openai]==1.13.0",), drive=program("griptape_agent.py"),
    ),
    Client(
        name="pydantic-ai-summary", family="pydantic-ai", protocol="chat", losses=COMPACTED, compactions=3,
        shares="pydantic-ai-summary", pip=_PYDANTIC_SUMMARY, drive=program("pydantic_ai_summary.py", "summary"),
    ),
    Client(
        name="pydantic-ai-warner", family="pydantic-ai", protocol="chat", losses=COMPACTED, compactions=3,
        shares="pydantic-ai-summary", pip=_PYDANTIC_SUMMARY, drive=program("pydantic_ai_summary.py", "warner"),
    ),
    Client(
        name="pydantic-ai-window", family="pydantic-ai", protocol="chat", losses=WINDOW, compactions=3,
        shares="pydantic-ai-summary", pip=_PYDANTIC_SUMMARY, drive=program("pydantic_ai_summary.py", "window"),
    ),
    Client(
        name="librechat", family="LibreChat", protocol="chat", losses=WINDOW | COMPACTED,
        npm=("@librechat/agents@3.9.2",), drive=program("librechat_agent.mjs"),
    ),
    Client(
        name="voltagent", family="VoltAgent", protocol="chat", losses=COMPACTED | WINDOW, compactions=2,
        npm=("@voltagent/core@2.10.0", "@ai-sdk/openai-compatible@2.0.91", "ai@6.0.326", "zod@4.6.7"),
        drive=program("voltagent_agent.mjs"),
    ),
    Client(
        name="chatgpt-api", family="chatgpt (npm)", protocol="chat", losses=WINDOW, compactions=2, tools=False,
        npm=("chatgpt@5.2.5",), drive=program("chatgpt_api.mjs"),
    ),
    Client(
        name="agno-results", family="Agno", protocol="chat", losses=COMPACTED | WINDOW, compactions=3, shares="agno",
        pip=_AGNO, drive=program("agno_results.py"),
    ),
    Client(
        name="langmem-plain", family="LangMem", protocol="chat", losses=COMPACTED, compactions=2, tools=False,
        shares="langmem", pip=_LANGMEM, drive=program("langmem_agent.py", "plain"),
    ),
    Client(
        name="ag2", family="AG2", protocol="chat", losses=COMPACTED, compactions=2, pip=_AG2,
        drive=program("ag2_agent.py", "summary"),
    ),
    Client(
        name="ag2-window", family="AG2", protocol="chat", losses=WINDOW, compactions=3, shares="ag2", pip=_AG2,
        drive=program("ag2_agent.py", "window"),
    ),
    Client(
        name="smolagents", family="smolagents", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        pip=("smolagents[openai]==1.26.0",), drive=program("smolagents_agent.py"),
    ),
    Client(
        name="beeai", family="BeeAI", protocol="chat", losses=COMPACTED, compactions=3, tools=False,
        pip=("beeai-framework==0.1.85", "litellm==1.106.2", "mcp==2.3.0"), drive=program("beeai_agent.py"),
    ),
    Client(
        name="openai-agents-js", family="OpenAI Agents", protocol="responses", losses=COMPACTED,
        shares="openai-agents-js", npm=_OPENAI_AGENTS_JS, drive=program("openai_agents.mjs", "input"),
    ),
    Client(
        name="openai-agents-chain", family="OpenAI Agents", protocol="responses", losses=COMPACTED,
        shares="openai-agents-js", npm=_OPENAI_AGENTS_JS, drive=program("openai_agents.mjs", "chain"),
    ),
    Client(
        name="openai-agents-newest", family="OpenAI Agents", protocol="responses", losses=WINDOW, compactions=3,
        shares="openai-agents-js", npm=_OPENAI_AGENTS_JS, drive=program("openai_agents.mjs", "newest"),
    ),
    Client(
        name="strands-js", family="Strands", protocol="chat", losses=COMPACTED, compactions=2, npm=_STRANDS_JS,
        drive=program("strands_agent.mjs"),
    ),
    Client(
        name="strands-js-window", family="Strands", protocol="chat", losses=WINDOW, compactions=3, shares="strands-js",
        npm=_STRANDS_JS, drive=program("strands_agent.mjs", "window"),
    ),
    Client(
        name="pipecat", family="Pipecat", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("pipecat-ai[openai]==1.14.0",), drive=program("pipecat_bot.py"),
    ),
    Client(
        name="livekit", family="LiveKit Agents", protocol="chat", losses=WINDOW, compactions=2, shares="livekit",
        pip=_LIVEKIT, drive=program("livekit_agent.py", "handover"),
    ),
    Client(
        name="livekit-truncate", family="LiveKit Agents", protocol="chat", losses=WINDOW, compactions=3,
        shares="livekit", pip=_LIVEKIT, drive=program("livekit_agent.py", "truncate"),
    ),
    Client(
        name="shell-gpt", family="Shell GPT", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        pip=("shell-gpt==1.5.1", "click"), drive=agents.shell_gpt,
    ),
    Client(
        name="code-puppy", family="Code Puppy", protocol="chat", losses=COMPACTED, compactions=2, limit_s=600,
        pip=("code-puppy==0.0.946",), drive=agents.code_puppy,
    ),
    Client(
        name="langroid", family="Langroid", protocol="chat", losses=WINDOW, tools=False, pip=("langroid==0.69.16",),
        drive=program("langroid_agent.py"),
    ),
    Client(
        name="mem0", family="Mem0", protocol="chat", losses=COMPACTED, compactions=5, tools=False,
        pip=("mem0ai==2.2.1", "openai==3.54.0"), drive=program("mem0_chat.py"),
    ),
    Client(
        name="llama-index-ts", family="LlamaIndex", protocol="chat", losses=COMPACTED, compactions=2, tools=False,
        npm=("llamaindex@0.12.1", "@llamaindex/openai@0.4.22"), drive=program("llama_index_chat.mjs"),
    ),
    Client(
        name="open-interpreter", family="Open Interpreter", protocol="chat", losses=WINDOW, compactions=3,
        pip=("open-interpreter==0.4.3", "litellm==1.83.0", "setuptools==79.0.1"), drive=program("open_interpreter.py"),
    ),
    Client(
        name="letta-code", family="Letta Code", protocol="chat", losses=COMPACTED, compactions=2,
        npm=("@letta-ai/letta-code@0.25.9",), drive=agents.letta_code,
    ),
    Client(
        name="eliza", family="ElizaOS", protocol="responses", losses=WINDOW, compactions=3, tools=False,
        npm=(
            "@elizaos/core@1.7.2", "@elizaos/plugin-bootstrap@1.7.2", "@elizaos/plugin-openai@1.6.0",
            "@elizaos/plugin-sql@1.7.2",
        ),
        drive=program("eliza_agent.mjs"),
    ),
    Client(
        name="deepagents-python", family="Deep Agents", protocol="chat", losses=COMPACTED, compactions=3,
        pip=("deepagents==0.7.32", "langchain-openai==1.7.3"), drive=program("deep_agent.py"),
    ),
    Client(
        name="openhands", family="OpenHands", protocol="chat", losses=COMPACTED, compactions=2, python=(3, 12),
        pip=("openhands-sdk==1.58.2", "litellm==1.100.0"), drive=program("openhands_agent.py"),
    ),
    Client(
        name="mistral-vibe", family="Mistral Vibe", protocol="chat", losses=COMPACTED, compactions=2, python=(3, 12),
        limit_s=600, pip=("mistral-vibe==3.0.2",), drive=agents.mistral_vibe,
    ),
    Client(
        name="gptme", family="gptme", protocol="chat", losses=COMPACTED, compactions=2, pip=("gptme==0.35.1",),
        drive=agents.gptme,
    ),
    Client(
        name="nanobot", family="nanobot", protocol="chat", losses=COMPACTED, compactions=2, full_tokens=2_000,
        limit_s=600, pip=("nanobot-ai==0.3.5",), drive=agents.nanobot,
    ),
    Client(
        name="ag2-classic", family="AG2", protocol="chat", losses=WINDOW, compactions=3, pip=("ag2[openai]==0.9.9",),
        drive=program("ag2_classic.py"),
    ),
    Client(
        name="qwen-agent", family="Qwen-Agent", protocol="chat", losses=WINDOW | CLEARED, compactions=3,
        pip=("qwen-agent==0.0.34", "numpy", "soundfile", "python-dateutil", "tqdm"),
        drive=program("qwen_agent_chat.py"),
    ),
    Client(
        name="cline", family="Cline", protocol="chat", losses=COMPACTED, compactions=3, shares="cline", npm=_CLINE,
        drive=program("cline_core.mjs", "agentic"),
    ),
    Client(
        name="cline-basic", family="Cline", protocol="chat", losses=COMPACTED, full_tokens=2_000, shares="cline",
        npm=_CLINE, drive=program("cline_core.mjs", "basic"),
    ),
    Client(
        name="kimi-cli", family="Kimi CLI", protocol="chat", losses=COMPACTED, compactions=2, python=(3, 13),
        limit_s=600, pip=("kimi-cli==1.45.0", "lxml_html_clean"), drive=agents.kimi_cli,
    ),
    Client(
        name="exchange", family="Exchange", protocol="chat", losses=COMPACTED, compactions=2, full_tokens=3_000,
        shares="exchange", pip=_EXCHANGE, drive=program("exchange_agent.py", "summary"),
    ),
    Client(
        name="exchange-truncate", family="Exchange", protocol="chat", losses=WINDOW, compactions=3, full_tokens=3_000,
        shares="exchange", pip=_EXCHANGE, drive=program("exchange_agent.py", "truncate"),
    ),
    Client(
        name="openjiuwen", family="openJiuwen", protocol="chat", losses=COMPACTED, compactions=3, shares="openjiuwen",
        pip=_OPENJIUWEN, drive=program("openjiuwen_agent.py", "dialogue"),
    ),
    Client(
        name="openjiuwen-round", family="openJiuwen", protocol="chat", losses=COMPACTED, compactions=2,
        shares="openjiuwen", pip=_OPENJIUWEN, drive=program("openjiuwen_agent.py", "round"),
    ),
    Client(
        name="openjiuwen-offload", family="openJiuwen", protocol="chat", losses=CLEARED, compactions=2,
        shares="openjiuwen", pip=_OPENJIUWEN, drive=program("openjiuwen_agent.py", "offload"),
    ),
    Client(
        name="openjiuwen-window", family="openJiuwen", protocol="chat", losses=WINDOW, compactions=3,
        shares="openjiuwen", pip=_OPENJIUWEN, drive=program("openjiuwen_agent.py", "window"),
    ),
    Client(
        name="praisonai", family="PraisonAI", protocol="chat", losses=WINDOW, compactions=2,
        pip=("praisonaiagents==1.7.17", "openai==3.54.0"), drive=program("praisonai_agent.py"),
    ),
    Client(
        name="spoon", family="SpoonOS", protocol="chat", losses=COMPACTED, compactions=3, python=(3, 12),
        pip=("spoon-ai-sdk==0.4.10", "fastmcp==2.12.5", "pydantic==2.11.10", "mcp==1.16.0"),
        drive=program("spoon_agent.py", "summarize"),
    ),
    Client(
        name="langchain-js", family="LangChain", protocol="chat", losses=COMPACTED, compactions=3,
        shares="langchain-js", npm=_LANGCHAIN_JS, drive=program("langchain_agent.mjs", "summary"),
    ),
    Client(
        name="langchain-js-trim", family="LangChain", protocol="chat", losses=WINDOW, compactions=3,
        shares="langchain-js", npm=_LANGCHAIN_JS, drive=program("langchain_agent.mjs", "trim"),
    ),
    Client(
        name="inspect", family="Inspect", protocol="chat", losses=COMPACTED, compactions=2, shares="inspect",
        pip=_INSPECT, drive=program("inspect_agent.py", "summary"),
    ),
    Client(
        name="inspect-edit", family="Inspect", protocol="chat", losses=CLEARED, shares="inspect", pip=_INSPECT,
        drive=program("inspect_agent.py", "edit"),
    ),
    Client(
        name="inspect-trim", family="Inspect", protocol="chat", losses=WINDOW, compactions=3, shares="inspect",
        pip=_INSPECT, drive=program("inspect_agent.py", "trim"),
    ),
    Client(
        name="atomic-agents", family="Atomic Agents", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        python=(3, 12), pip=("atomic-agents==2.15.0", "instructor==1.17.0", "openai==3.3.0"),
        drive=program("atomic_agent.py"),
    ),
    Client(
        name="phidata", family="phidata", protocol="chat", losses=COMPACTED, compactions=3,
        pip=("phidata==2.7.10", "openai==1.109.1"), drive=program("phidata_agent.py"),
    ),
    Client(
        name="upsonic", family="Upsonic", protocol="chat", losses=COMPACTED, compactions=3,
        pip=("upsonic==0.77.3", "openai==3.54.0"), drive=program("upsonic_agent.py"),
    ),
    Client(
        name="langchain-js-clear", family="LangChain", protocol="chat", losses=CLEARED, shares="langchain-js",
        npm=_LANGCHAIN_JS, drive=program("langchain_agent.mjs", "clear"),
    ),
    Client(
        name="langgraph-js", family="LangGraph", protocol="chat", losses=COMPACTED, compactions=2,
        shares="langchain-js", package="@langchain/langgraph", npm=_LANGCHAIN_JS,
        drive=program("langgraph_agent.mjs"),
    ),
    Client(
        name="langchain-js-memory", family="LangChain", protocol="chat", losses=COMPACTED, compactions=5, tools=False,
        npm=("@langchain/classic@1.0.50", "@langchain/core@1.4.0", "@langchain/openai@1.6.0"),
        drive=program("langchain_memory.mjs"),
    ),
    Client(
        name="mastra-limit", family="Mastra", protocol="chat", losses=WINDOW, compactions=3, shares="mastra",
        npm=_MASTRA, drive=program("mastra_agent.mjs", "limit"),
    ),
    Client(
        name="mastra-calls", family="Mastra", protocol="chat", losses=WINDOW, compactions=3, shares="mastra",
        npm=_MASTRA, drive=program("mastra_agent.mjs", "calls"),
    ),
    Client(
        name="beeai-js", family="BeeAI", protocol="chat", losses=WINDOW, compactions=3, npm=_BEEAI_JS,
        drive=program("beeai_agent.mjs"),
    ),
    Client(
        name="chatgpt-client", family="chatgpt-api (npm)", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        npm=("@waylaidwanderer/chatgpt-api@1.37.3",), drive=program("chatgpt_client.mjs"),
    ),
    Client(
        name="claude-code-router", family="Claude Code", protocol="chat", losses=COMPACTED, compactions=2,
        full_tokens=2_000, npm=_CLAUDE_CODE_ROUTER, drive=agents.claude_code_router,
    ),
    Client(
        name="connectonion", family="ConnectOnion", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("connectonion==1.9.2",), drive=program("connectonion_agent.py"),
    ),
    Client(
        name="stirrup", family="Stirrup", protocol="chat", losses=COMPACTED, python=(3, 13),
        pip=("stirrup==0.2.1", "lxml_html_clean"), drive=program("stirrup_agent.py"),
    ),
    Client(
        name="nanocoder", family="Nanocoder", protocol="chat", losses=CLEARED, shares="nanocoder", npm=_NANOCODER,
        drive=program("nanocoder_chat.mjs", "default"),
    ),
    Client(
        name="nanocoder-aggressive", family="Nanocoder", protocol="chat", losses=CLEARED, shares="nanocoder",
        npm=_NANOCODER, drive=program("nanocoder_chat.mjs", "aggressive"),
    ),
    Client(
        name="tinyagent", family="TinyAgent", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("tinyagent-py==0.1.20",), drive=program("tinyagent_chat.py"),
    ),
    Client(
        name="ripperdoc", family="Ripperdoc", protocol="chat", losses=COMPACTED, compactions=2, shares="ripperdoc",
        pip=("ripperdoc==0.6.2",), drive=program("ripperdoc_session.py", "native"),
    ),
    Client(
        name="ripperdoc-text", family="Ripperdoc", protocol="chat", losses=COMPACTED, compactions=2, tools=False,
        shares="ripperdoc", pip=("ripperdoc==0.6.2",), drive=program("ripperdoc_session.py", "text"),
    ),
    Client(
        name="swarms", family="Swarms", protocol="chat", losses=COMPACTED, pip=("swarms==16.0.3",),
        drive=program("swarms_agent.py"),
    ),
    Client(
        name="kani", family="Kani", protocol="chat", losses=WINDOW, compactions=3, pip=("kani[openai]==1.10.0",),
        drive=program("kani_chat.py"),
    ),
    Client(
        name="kilo", family="Kilo Code", protocol="chat", losses=COMPACTED, limit_s=600, npm=("@kilocode/cli@7.7.7",),
        drive=agents.kilo,
    ),
    Client(
        name="cecli", family="cecli", protocol="chat", losses=COMPACTED, compactions=2, tools=False, limit_s=600,
        pip=("cecli-dev==1.10.0",), drive=program("cecli_chat.py"),
    ),
    Client(
        name="pydantic-deep", family="pydantic-deep", protocol="chat", losses=COMPACTED, compactions=3, limit_s=600,
        pip=("pydantic-deep==0.3.50", "pydantic-ai-slim[openai]==2.62.0"),
        drive=program("pydantic_deep_agent.py"),
    ),
    Client(
        name="claude-agent-sdk", family="Claude Agent SDK", protocol="messages", losses=COMPACTED, compactions=2,
        full_tokens=190_000,
        npm=("@anthropic-ai/claude-agent-sdk@0.3.332",), drive=program("claude_agent.mjs"),
    ),
    Client(
        name="copilotkit", family="CopilotKit", protocol="chat", losses=WINDOW, compactions=3, shares="copilotkit",
        npm=_COPILOTKIT, drive=program("copilotkit_adapter.mjs", "openai"),
    ),
    Client(
        name="copilotkit-anthropic", family="CopilotKit", protocol="messages", losses=WINDOW, compactions=3,
        shares="copilotkit", npm=_COPILOTKIT, drive=program("copilotkit_adapter.mjs", "anthropic"),
    ),
    Client(
        name="pydantic-ai-harness", family="pydantic-ai", protocol="chat", losses=COMPACTED, compactions=2,
        python=(3, 12), shares="pydantic-ai-harness", pip=_PYDANTIC_HARNESS,
        drive=program("pydantic_harness_agent.py", "summary"),
    ),
    Client(
        name="pydantic-ai-harness-window", family="pydantic-ai", protocol="chat", losses=WINDOW, compactions=2,
        python=(3, 12), shares="pydantic-ai-harness", pip=_PYDANTIC_HARNESS,
        drive=program("pydantic_harness_agent.py", "window"),
    ),
    Client(
        name="pydantic-ai-harness-clear", family="pydantic-ai", protocol="chat", losses=CLEARED, python=(3, 12),
        shares="pydantic-ai-harness", pip=_PYDANTIC_HARNESS, drive=program("pydantic_harness_agent.py", "clear"),
    ),
    Client(
        name="pydantic-ai-harness-relevance", family="pydantic-ai", protocol="chat", losses=WINDOW, compactions=2,
        python=(3, 12), shares="pydantic-ai-harness", pip=_PYDANTIC_HARNESS,
        drive=program("pydantic_harness_agent.py", "relevance"),
    ),
    Client(
        name="fast-agent", family="fast-agent", protocol="chat", losses=COMPACTED, compactions=2, python=(3, 13),
        limit_s=600, shares="fast-agent", pip=_FAST_AGENT, drive=program("fast_agent_chat.py", "openai.gpt-4o"),
    ),
    Client(
        name="fast-agent-responses", family="fast-agent", protocol="responses", losses=COMPACTED, compactions=2,
        python=(3, 13), full_tokens=390_000, limit_s=600, shares="fast-agent", pip=_FAST_AGENT,
        drive=program("fast_agent_chat.py", "responses.gpt-5"),
    ),
    Client(
        name="fast-agent-messages", family="fast-agent", protocol="messages", losses=COMPACTED, compactions=2,
        python=(3, 13), full_tokens=190_000, limit_s=600, shares="fast-agent", pip=_FAST_AGENT,
        drive=program("fast_agent_chat.py", "anthropic.claude-sonnet-4-5?compaction=client"),
    ),
    Client(
        name="wayflow", family="WayFlow", protocol="chat", losses=COMPACTED, compactions=2, python=(3, 12),
        pip=("wayflowcore==26.3.1",), drive=program("wayflow_agent.py"),
    ),
    Client(
        name="command-code", family="Command Code", protocol="chat", losses=COMPACTED, compactions=2, limit_s=600,
        npm=("command-code@1.64.0", "@opentelemetry/semantic-conventions@1.37.0", "node@22.23.3"),
        drive=agents.command_code,
    ),
    Client(
        name="agent-kit", family="AgentKit", protocol="chat", losses=WINDOW, compactions=3,
        npm=("@inngest/agent-kit@0.13.2",), drive=program("agent_kit_agent.mjs"),
    ),
    Client(
        name="timbal", family="Timbal", protocol="responses", losses=COMPACTED, compactions=2, python=(3, 12),
        shares="timbal", pip=_TIMBAL, drive=program("timbal_agent.py", "summary"),
    ),
    Client(
        name="kon", family="Kon", protocol="chat", losses=COMPACTED, compactions=2, python=(3, 12), full_tokens=190_000,
        pip=("kon-coding-agent==0.4.3",), drive=program("kon_agent.py"),
    ),
    Client(
        name="openharness", family="OpenHarness", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("openharness-ai==0.1.9",), drive=program("openharness_agent.py"),
    ),
    Client(
        name="agentknit", family="agentknit", protocol="chat", losses=COMPACTED,
        pip=("agentknit==0.1025.0",), drive=program("agentknit_agent.py"),
    ),
    Client(
        name="n8n-agents", family="n8n", protocol="chat", losses=COMPACTED, compactions=2,
        npm=("@n8n/agents@0.26.1", "zod@3.25.76", "--ignore-scripts"), drive=program("n8n_agent.mjs"),
    ),
    Client(
        name="compact-middleware", family="Deep Agents", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("compact-middleware==0.1.1", "deepagents==0.7.32", "langchain-openai==1.7.3"),
        drive=program("deep_agent.py", "compact"),
    ),
    Client(
        name="google-adk-js", family="Google ADK", protocol="chat", losses=COMPACTED, compactions=2,
        shares="google-adk-js", npm=_GOOGLE_ADK_JS, drive=program("google_adk_agent.mjs", "tokens"),
    ),
    Client(
        name="google-adk-js-anchored", family="Google ADK", protocol="chat", losses=COMPACTED, compactions=2,
        shares="google-adk-js", npm=_GOOGLE_ADK_JS, drive=program("google_adk_agent.mjs", "anchored"),
    ),
    Client(
        name="google-adk-js-truncate", family="Google ADK", protocol="chat", losses=WINDOW, compactions=3,
        shares="google-adk-js", npm=_GOOGLE_ADK_JS, drive=program("google_adk_agent.mjs", "truncate"),
    ),
    Client(
        name="timbal-turns", family="Timbal", protocol="responses", losses=WINDOW, compactions=3, python=(3, 12),
        shares="timbal", pip=_TIMBAL, drive=program("timbal_agent.py", "turns"),
    ),
    Client(
        name="patchpal", family="PatchPal", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("patchpal==0.25.3",), drive=program("patchpal_agent.py"),
    ),
    Client(
        name="trpc-agent", family="tRPC-Agent", protocol="chat", losses=COMPACTED, compactions=2, limit_s=600,
        shares="trpc-agent", pip=_TRPC_AGENT, drive=program("trpc_agent.py", "summary"),
    ),
    Client(
        name="trpc-agent-compact", family="tRPC-Agent", protocol="chat", losses=COMPACTED | WINDOW, compactions=2,
        limit_s=600, shares="trpc-agent", pip=_TRPC_AGENT, drive=program("trpc_agent.py", "compact"),
    ),
    Client(
        name="trpc-agent-clear", family="tRPC-Agent", protocol="chat", losses=CLEARED, limit_s=600,
        shares="trpc-agent", pip=_TRPC_AGENT, drive=program("trpc_agent.py", "clear"),
    ),
    Client(
        name="aigne", family="AIGNE", protocol="chat", losses=COMPACTED, compactions=2,
        npm=("@aigne/core@1.72.0", "@aigne/openai@0.16.16"), drive=program("aigne_agent.mjs"),
    ),
    Client(
        name="lionagi", family="lionagi", protocol="chat", losses=COMPACTED, compactions=2, tools=False,
        pip=("lionagi==0.36.0",), drive=program("lionagi_branch.py"),
    ),
    Client(
        name="deepcode", family="DeepCode", protocol="chat", losses=COMPACTED, python=(3, 12), limit_s=600,
        pip=("deepcode-hku==2.3.1",), drive=program("deepcode_turns.py"),
    ),
    Client(
        name="bpsa", family="BPSA", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("bpsa==1.24.17", "openai==3.54.0"), drive=program("bpsa_agent.py"),
    ),
    Client(
        name="cayu", family="Cayu", protocol="chat", losses=COMPACTED, compactions=2, shares="cayu", pip=_CAYU,
        drive=program("cayu_agent.py", "summary"),
    ),
    Client(
        name="cayu-turns", family="Cayu", protocol="chat", losses=WINDOW, compactions=3, shares="cayu", pip=_CAYU,
        drive=program("cayu_agent.py", "turns"),
    ),
    Client(
        name="swival", family="Swival", protocol="chat", losses=COMPACTED, refused=True, python=(3, 13), limit_s=600,
        pip=("swival==1.0.48",), drive=program("swival_session.py"),
    ),
    Client(
        name="kivi", family="Kivi", protocol="chat", losses=COMPACTED, compactions=3,
        pip=("kivi-ai==0.3.19",), drive=program("kivi_agent.py"),
    ),
    Client(
        name="agentica", family="Agentica", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("agentica==1.5.0",), drive=program("agentica_agent.py"),
    ),
    Client(
        name="jaf", family="JAF", protocol="chat", losses=WINDOW, compactions=3, pip=("jaf-py==2.6.22",),
        drive=program("jaf_agent.py"),
    ),
    Client(
        name="turnloop", family="Turnloop", protocol="chat", losses=COMPACTED, compactions=2, shares="turnloop",
        pip=_TURNLOOP, drive=program("turnloop_agent.py", "summary"),
    ),
    Client(
        name="turnloop-digest", family="Turnloop", protocol="chat", losses=COMPACTED, compactions=2, shares="turnloop",
        pip=_TURNLOOP, drive=program("turnloop_agent.py", "digest"),
    ),
    Client(
        name="tinyharness", family="tinyharness", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("tinyharness-lm==0.1.0",), drive=program("tinyharness_session.py"),
    ),
    Client(
        name="tunacode", family="TunaCode", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("tunacode-cli==0.2.3",), drive=program("tunacode_agent.py"),
    ),
    Client(
        name="loom", family="Loom", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("loom-agent[openai]==0.8.2",), drive=program("loom_agent.py"),
    ),
    Client(
        name="vague-code", family="vague-code", protocol="chat", losses=COMPACTED, compactions=3,
        pip=("vague-code==0.1.22",), drive=program("vague_code_chat.py"),
    ),
    Client(
        name="forge", family="Forge", protocol="chat", losses=WINDOW | CLEARED, compactions=2, python=(3, 12),
        shares="forge", pip=_FORGE, drive=program("forge_workflow.py", "tiered"),
    ),
    Client(
        name="forge-window", family="Forge", protocol="chat", losses=WINDOW, compactions=3, python=(3, 12),
        shares="forge", pip=_FORGE, drive=program("forge_workflow.py", "window"),
    ),
    Client(
        name="cliff", family="CliffCompaction", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("cliffcompaction==0.1.0", "openai==3.57.0"), drive=program("gateway_chat.py", "cliff"),
    ),
    Client(
        name="ctxkeeper", family="ctxkeeper", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("ctxkeeper==1.2.0", "openai==3.57.0"), drive=program("gateway_chat.py", "ctxkeeper"),
    ),
    Client(
        name="context-guardian", family="Context Guardian", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("context-guardian==0.12.0", "openai==3.57.0"), drive=program("gateway_chat.py", "context-guardian"),
    ),
    Client(
        name="lleverage", family="Lleverage", protocol="chat", losses=COMPACTED, compactions=2,
        npm=("@lleverage-ai/agent-sdk@0.1.0-alpha.6", "ai@6.0.326", "@ai-sdk/openai@3.0.141", "zod@4.6.7"),
        drive=program("lleverage_agent.mjs"),
    ),
    Client(
        name="magma", family="Magma", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        npm=("@pompeii-labs/magma@1.8.3",), drive=program("magma_agent.mjs"),
    ),
    _history("chatcram", COMPACTED, compactions=2),
    _history("langstate", COMPACTED, compactions=2),
    _history("contexttrim", WINDOW, compactions=3),
    _history("roleplay-slim", CLEARED, compactions=2),
    Client(
        name="litellm", family="LiteLLM", protocol="chat", losses=WINDOW | CLEARED, compactions=3, tools=False,
        pip=("litellm==1.110.2", "openai==3.57.0"), drive=program("history_chat.py", "litellm"),
    ),
    _history("llm-context-budget", COMPACTED, compactions=3),
    _history("compression-prompt", CLEARED, compactions=3),
    Client(
        name="google-adk-filter", family="Google ADK", protocol="chat", losses=WINDOW, compactions=3,
        shares="google-adk", pip=_GOOGLE_ADK, drive=program("google_adk_agent.py", "filter"),
    ),
    Client(
        name="cloudflare-agents", family="Cloudflare Agents", protocol="chat", losses=COMPACTED, compactions=2,
        npm=("agents@0.32.0", "ai@6.0.326", "@ai-sdk/openai@3.0.141", "zod@4.6.7", "--legacy-peer-deps"),
        drive=program("cloudflare_sessions.mjs"),
    ),
    Client(
        name="ms-agent", family="MS-Agent", protocol="chat", losses=COMPACTED, compactions=2, tools=False,
        pip=("ms-agent==1.6.0", "loguru==0.7.3"), drive=program("ms_agent_chat.py"),
    ),
    Client(
        name="eve", family="eve", protocol="chat", losses=COMPACTED, compactions=2, package="eve",
        npm=("eve@0.80.1", "ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92", "zod@4.6.7", "node@24.21.0"),
        drive=program("eve_agent.mjs"),
    ),
    Client(
        name="oh-my-opencode", family="opencode", protocol="chat", losses=COMPACTED, compactions=2, limit_s=600,
        npm=("oh-my-opencode@4.19.4", "opencode-ai@1.18.33"), drive=agents.oh_my_opencode,
    ),
    Client(
        name="neurolink", family="NeuroLink", protocol="responses", losses=COMPACTED | WINDOW, compactions=3,
        npm=("@juspay/neurolink@9.37.0", "react@19.3.1", "zod@4.6.7", "--legacy-peer-deps"),
        drive=program("neurolink_chat.mjs"),
    ),
    Client(
        name="langgraph-swarm", family="LangGraph", protocol="chat", losses=COMPACTED, shares="langgraph-swarm",
        pip=_SWARM, drive=program("swarm_agents.py", "summary"),
    ),
    Client(
        name="langgraph-swarm-trim", family="LangGraph", protocol="chat", losses=WINDOW, compactions=3,
        shares="langgraph-swarm", pip=_SWARM, drive=program("swarm_agents.py", "trim"),
    ),
    _history("convopack", COMPACTED, compactions=3),
    _history("rollmem", COMPACTED, compactions=3),
    _history("ctxfit", WINDOW, compactions=3),
    _history("contextclip", WINDOW | COMPACTED, compactions=2),
    _history("chatfit", COMPACTED, compactions=3),
    _history("nodus-context", COMPACTED, compactions=3),
    Client(
        name="openai-agents-compaction", family="OpenAI Agents", protocol="chat", losses=WINDOW, compactions=3,
        pip=("openai-agents-context-compaction==0.3.0", "openai-agents==0.24.0"),
        drive=program("openai_agents_chat.py", "budget"),
    ),
    Client(
        name="llmist", family="llmist", protocol="chat", losses=COMPACTED, compactions=3, tools=False, shares="llmist",
        npm=_LLMIST, drive=program("llmist_agent.mjs", "summarization"),
    ),
    Client(
        name="llmist-window", family="llmist", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        shares="llmist", npm=_LLMIST, drive=program("llmist_agent.mjs", "sliding-window"),
    ),
    Client(
        name="livekit-js", family="LiveKit Agents", protocol="chat", losses=COMPACTED, compactions=2,
        npm=("@livekit/agents@1.9.0", "@livekit/agents-plugin-openai@1.9.0", "zod@4.6.7"),
        drive=program("livekit_chat.mjs"),
    ),
    Client(
        name="sprucebot", family="Sprucebot", protocol="chat", losses=CLEARED | WINDOW, compactions=3, tools=False,
        npm=("@sprucelabs/sprucebot-llm@18.1.6",), drive=program("sprucebot.mjs"),
    ),
    Client(
        name="ai-sdk-tools", family="AI SDK Tools", protocol="chat", losses=WINDOW, compactions=3,
        npm=(
            "@ai-sdk-tools/agents@1.2.0", "@ai-sdk-tools/memory@1.2.0", "ai@5.0.277", "@ai-sdk/openai@2.0.131",
            "zod@4.6.7",
        ),
        drive=program("ai_sdk_tools_agent.mjs"),
    ),
    Client(
        name="mnesis", family="mnesis", protocol="chat", losses=COMPACTED, compactions=2, tools=False, python=(3, 12),
        pip=("mnesis==0.4.0", "litellm==1.110.2"), drive=program("mnesis_chat.py"),
    ),
    Client(
        name="agent-squad", family="Agent Squad", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        npm=("agent-squad@1.0.1", "openai@4.104.0"), drive=program("agent_squad.mjs"),
    ),
    Client(
        name="haystack-memory", family="Haystack", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        pip=("haystack-experimental==0.19.0.post1", "haystack-ai==3.4.1"), drive=program("haystack_memory.py"),
    ),
    Client(
        name="clippy-code", family="Clippy", protocol="chat", losses=COMPACTED, compactions=2, tools=False,
        pip=("clippy-code==4.21.0",), drive=program("clippy_agent.py"),
    ),
    Client(
        name="modelfusion", family="ModelFusion", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        npm=("modelfusion@0.137.0",), drive=program("modelfusion_chat.mjs"),
    ),
    Client(
        name="nagents", family="nagents", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("nagents==0.25.2",), drive=program("nagents_agent.py"),
    ),
    Client(
        name="glove", family="Glove", protocol="chat", losses=COMPACTED, shares="glove", npm=_GLOVE,
        drive=program("glove_agent.mjs", "chat"),
    ),
    Client(
        name="glove-messages", family="Glove", protocol="messages", losses=COMPACTED, shares="glove", npm=_GLOVE,
        drive=program("glove_agent.mjs", "messages"),
    ),
    Client(
        name="tada-core", family="tada-core", protocol="messages", losses=COMPACTED, compactions=2, shares="tada-core",
        pip=_TADA, drive=program("tada_agent.py", "messages"),
    ),
    Client(
        name="tada-core-responses", family="tada-core", protocol="responses", losses=COMPACTED, compactions=2,
        shares="tada-core", pip=_TADA, drive=program("tada_agent.py", "responses"),
    ),
    Client(
        name="holmes", family="HolmesGPT", protocol="chat", losses=COMPACTED, compactions=2,
        pip=("holmesgpt==0.45.0",), drive=program("holmes_agent.py"),
    ),
    Client(
        name="teams-ai", family="Teams AI", protocol="chat", losses=WINDOW, compactions=3, tools=False,
        npm=("@microsoft/teams-ai@1.7.4", "--ignore-scripts"), drive=program("teams_ai_chat.mjs"),
    ),
    Client(
        name="eko", family="Eko", protocol="responses", losses=WINDOW, compactions=3,
        npm=("@eko-ai/eko@3.1.5", "--legacy-peer-deps"), drive=program("eko_dialogue.mjs"),
    ),
)  # fmt: skip
