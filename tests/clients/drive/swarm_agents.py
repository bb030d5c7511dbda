"""Two agents of a LangGraph swarm in one conversation: the first hands over to the other, who reads files. What their
models see is trimmed (`trim`), or summed up by LangMem's node (`summary`).

The scripted model runs a command by any tool called shell; that of the first agent hands over.
"""

import json
import subprocess
import sys

from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately, trim_messages
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from langgraph.prebuilt.chat_agent_executor import AgentState
from langgraph_swarm import SwarmState, create_handoff_tool, create_swarm
from langmem.short_term import SummarizationNode

JOB = json.load(sys.stdin)
MODEL = ChatOpenAI(model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-swarm", use_responses_api=False)


@tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


class Agents(AgentState):
    context: dict


class Swarm(SwarmState):
    context: dict


def trim(state):
    few = {"strategy": "last", "max_tokens": 140, "start_on": "human", "end_on": ("human", "tool")}
    return {"llm_input_messages": trim_messages(state["messages"], token_counter=count_tokens_approximately, **few)}


def forgets():
    if sys.argv[1] == "trim":
        return trim
    return SummarizationNode(
        model=MODEL, token_counter=count_tokens_approximately, max_tokens=260, max_summary_tokens=60,
        output_messages_key="llm_input_messages",
    )  # fmt: skip


def agent(name, prompt, tools):
    return create_react_agent(MODEL, tools, name=name, prompt=prompt, pre_model_hook=forgets(), state_schema=Agents)


def main():
    to_reader = create_handoff_tool(agent_name="reader", name="shell")
    back = create_handoff_tool(agent_name="triage", name="back_to_triage")
    triage = agent("triage", "You help a small team.", [to_reader])
    reader = agent("reader", "You read files for a small team.", [shell, back])
    swarm = create_swarm([triage, reader], default_active_agent="triage", state_schema=Swarm)
    app, thread = swarm.compile(checkpointer=InMemorySaver()), {"configurable": {"thread_id": "talk"}}
    turns = (app.invoke({"messages": [HumanMessage(line)]}, thread) for line in JOB["lines"])
    print("\n" + json.dumps([turn["messages"][-1].text for turn in turns]))


main()
