"""A chat with Mem0: the model sees what is remembered of the talk, in the system prompt, and nothing of the talk.

A fact may be remembered of many people, so the program names the conversation.
"""

import json
import os
import sys

JOB = json.load(sys.stdin)
HOME, URL, KEY = os.environ["HOME"], JOB["url"] + "/v1", "sk-dummy-mem0"
os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": HOME + "/mem0", "OPENAI_API_KEY": KEY}

from mem0 import Memory  # noqa: E402
from mem0.embeddings.mock import MockEmbeddings  # noqa: E402
from mem0.utils.factory import EmbedderFactory  # noqa: E402
from openai import OpenAI  # noqa: E402

CONFIG = {
    "llm": {"provider": "openai", "config": {"model": "gpt-4.1-mini", "openai_base_url": URL, "api_key": KEY}},
    "vector_store": {"provider": "qdrant", "config": {"path": HOME + "/qdrant", "embedding_model_dims": 10}},
    "history_db_path": HOME + "/history.db",
}
SYSTEM = "You help a small team. Answer by what is asked, and by what is remembered.\nRemembered:\n"


def main():
    EmbedderFactory.create = lambda *args: MockEmbeddings()
    memory, ann = Memory.from_config(CONFIG), "ann"
    client = OpenAI(base_url=URL, api_key=KEY, default_headers={"x-lantern-session": ann})
    answers = []
    for line in JOB["lines"]:
        found = memory.search(line, filters={"user_id": ann}, top_k=3)["results"]
        system = SYSTEM + "\n".join("- " + each["memory"] for each in found)
        asked = {"role": "user", "content": line}
        sent = [{"role": "system", "content": system}, asked]
        answer = client.chat.completions.create(model="gpt-4.1-mini", messages=sent).choices[0].message.content
        memory.add([asked, {"role": "assistant", "content": answer}], user_id=ann)
        answers.append(answer)
    print("\n" + json.dumps(answers), flush=True)
    os._exit(0)  # threads of its vector store go on


main()
