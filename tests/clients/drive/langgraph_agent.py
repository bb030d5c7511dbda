"""A graph of LangGraph with a checkpointer: a summary in its system prompt, what was summed up removed by its id."""

import json
import subprocess
import sys

from langchain_core.messages import HumanMessage, RemoveMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

JOB = json.load(sys.stdin)
MODEL = ChatOpenAI(
    model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-langgraph", use_responses_api=False
)


@tool
def shell(command: str) -> str:
    """Runs a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


class State(MessagesState):
    summary: str


def call_model(state):
    summary = state.get("summary", "")
    messages = state["messages"]
    if summary:
        messages = [SystemMessage(content=f"Summary of conversation earlier: {summary}"), *messages]
    return {"messages": [MODEL.bind_tools([shell]).invoke(messages)]}


def summarize(state):
    summary = state.get("summary", "")
    wish = "Create a summary of the conversation above:"
    if summary:
        wish = (
            f"This is summary of the conversation to date: {summary}\n\n"
            "Extend the summary by taking into account the new messages above:"
        )
    told = MODEL.invoke([*state["messages"], HumanMessage(content=wish)])
    return {"summary": told.text, "messages": [RemoveMessage(id=m.id) for m in state["messages"][:-2]]}


def after_model(state):
    if state["messages"][-1].tool_calls:
        return "tools"
    return "summarize" if len(state["messages"]) > 8 else END


def main():
    graph = StateGraph(State)
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode([shell]))
    graph.add_node("summarize", summarize)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, ["tools", "summarize", END])
    graph.add_edge("tools", "model")
    graph.add_edge("summarize", END)
    app = graph.compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "talk"}}
    said = (app.invoke({"messages": [HumanMessage(line)]}, thread) for line in JOB["lines"])
    print(json.dumps([state["messages"][-1].text for state in said]))


main()
