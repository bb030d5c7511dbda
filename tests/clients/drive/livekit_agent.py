"""LiveKit's agents without a room. By its argument: "truncate" keeps the newest items of the talk; "handover" goes on
with the next agent, which has instructions of its own and is given the newest items."""

import asyncio
import json
import os
import subprocess
import sys

from livekit.agents import Agent, AgentSession, function_tool
from livekit.plugins import openai

JOB = json.load(sys.stdin)
FORGETS = sys.argv[1]
ROLES = {
    0: "You help a small team.",
    3: "You look after the machines of a small team. Be brief and friendly.",
    6: "You close the day of a small team.",
}
PAUSE_S = 1


def run(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


class Operator(Agent):
    def __init__(self, line, **more):
        super().__init__(instructions=ROLES[line], **more)
        self.line = line

    async def on_enter(self):
        if self.line:
            context = self.chat_ctx.copy()
            context.add_message(role="system", content=f"You came in at line {self.line}. The user's name is unknown.")
            await self.update_chat_ctx(context)

    @function_tool
    async def shell(self, command: str) -> str:
        """Runs a command."""
        return run(command)


async def main():
    model = openai.LLM(model="gpt-4.1-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-livekit")
    session, answers = AgentSession(llm=model), []
    await session.start(Operator(0))
    for n, line in enumerate(JOB["lines"]):
        agent = session.current_agent
        if FORGETS == "truncate":
            await agent.update_chat_ctx(agent.chat_ctx.copy().truncate(max_items=6))
        elif n and n in ROLES:
            session.update_agent(
                Operator(n, chat_ctx=agent.chat_ctx.copy(exclude_instructions=True).truncate(max_items=4))
            )
            await asyncio.sleep(PAUSE_S)
        result = await session.run(user_input=line)
        said = [e.item for e in result.events if e.type == "message" and e.item.role == "assistant"]
        answers.append(said[-1].text_content)
    print("\n" + json.dumps(answers), flush=True)
    os._exit(0)


asyncio.run(main())
