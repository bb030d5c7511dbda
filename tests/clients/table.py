"""The clients that `scripts/clients` knows, with the versions that were last seen to work."""

from clients.client import Client
from clients.programs import program

COMPACTED = frozenset({"compacted"})

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
)  # fmt: skip
