"""The clients that `scripts/clients` knows, with the versions that were last seen to work."""

from clients import agents
from clients.client import Client
from clients.programs import program

COMPACTED = frozenset({"compacted"})
LANGCHAIN = ("langchain==1.4.7", "langchain-openai==1.6.7")

CLIENTS = (
    Client(
        name="openai-python", family="OpenAI SDK", protocol="chat", quick=True, losses=COMPACTED,
        pip=("openai==3.54.0",), drive=program("openai_python.py"),
    ),
    Client(
        name="anthropic-python", family="Anthropic SDK", protocol="messages", quick=True, losses=COMPACTED,
        pip=("anthropic==2.12.0",), drive=program("anthropic_python.py"),
    ),
    Client(
        name="openai-node", family="OpenAI SDK", protocol="responses", quick=True, losses=COMPACTED, tools=False,
        npm=("openai@7.57.0",), drive=program("openai_node.mjs"),
    ),
    Client(
        name="anthropic-node", family="Anthropic SDK", protocol="messages", quick=True, losses=frozenset({"window"}),
        tools=False, compactions=4, npm=("@anthropic-ai/sdk@1.12.0",), drive=program("anthropic_node.mjs"),
    ),
    Client(
        name="langchain-summary", family="LangChain", protocol="chat", quick=True, losses=COMPACTED, shares="langchain",
        pip=LANGCHAIN, drive=program("langchain_agent.py", "summarise"),
    ),
    Client(
        name="langchain-clear", family="LangChain", protocol="chat", quick=True, losses=frozenset({"cleared"}),
        shares="langchain", pip=LANGCHAIN, drive=program("langchain_agent.py", "clear"),
    ),
    Client(
        name="langchain-trim", family="LangChain", protocol="chat", quick=True, losses=frozenset({"window"}),
        shares="langchain", compactions=3, pip=LANGCHAIN, drive=program("langchain_agent.py", "trim"),
    ),
    Client(
        name="openai-agents", family="OpenAI Agents", protocol="responses", quick=True, losses=COMPACTED,
        pip=("openai-agents==0.24.0",), drive=program("openai_agents.py"),
    ),
    Client(
        name="pydantic-ai", family="pydantic-ai", protocol="chat", quick=True, losses=frozenset({"window"}),
        compactions=3, pip=("pydantic-ai-slim[openai]==2.68.0",), drive=program("pydantic_ai_agent.py"),
    ),
    Client(
        name="llama-index", family="LlamaIndex", protocol="chat", losses=COMPACTED, tools=False,
        pip=("llama-index-core==0.14.25", "llama-index-llms-openai-like==0.8.1"), drive=program("llama_index_chat.py"),
    ),
    Client(
        name="autogen", family="AutoGen", protocol="chat", losses=frozenset({"window", "compacted"}),
        pip=("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"), drive=program("autogen_chat.py"),
    ),
    Client(
        name="strands", family="Strands", protocol="chat", losses=COMPACTED,
        pip=("strands-agents[openai]==1.62.0",), drive=program("strands_agent.py"),
    ),
    Client(
        name="codex", family="Codex CLI", protocol="responses", losses=COMPACTED,
        npm=("@openai/codex@0.169.0",), drive=agents.codex,
    ),
    Client(
        name="codex-openai", family="Codex CLI", protocol="responses", losses=COMPACTED, shares="codex",
        npm=("@openai/codex@0.169.0",), drive=agents.codex_openai,
    ),
    Client(
        name="claude-code", family="Claude Code", protocol="messages", losses=COMPACTED, full_tokens=190_000,
        npm=("@anthropic-ai/claude-code@2.1.330",), drive=agents.claude_code,
    ),
    Client(
        name="opencode", family="opencode", protocol="chat", losses=COMPACTED,
        npm=("opencode-ai@1.18.33",), drive=agents.opencode,
    ),
    Client(
        name="qwen-code", family="qwen-code", protocol="chat", losses=COMPACTED, full_tokens=169_000,
        npm=("@qwen-code/qwen-code@0.24.4", "node@22.23.3"), drive=agents.qwen_code,
    ),
    Client(
        name="aider", family="aider", protocol="chat", losses=COMPACTED, tools=False,
        pip=("aider-chat==0.86.2",), drive=agents.aider,
    ),
    Client(
        name="pi", family="pi", protocol="chat", losses=COMPACTED,
        npm=("@mariozechner/pi-coding-agent@0.73.1",), drive=agents.pi,
    ),
)  # fmt: skip
