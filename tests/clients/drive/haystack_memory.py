"""A chat in Haystack whose experimental message store gives back the newest messages alone."""

import json
import sys

from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_experimental.chat_message_stores.in_memory import InMemoryChatMessageStore
from haystack_experimental.components.retrievers import ChatMessageRetriever
from haystack_experimental.components.writers import ChatMessageWriter

JOB = json.load(sys.stdin)
SYSTEM = ChatMessage.from_system("You help a small team to run its services.")


def main():
    store = InMemoryChatMessageStore()
    retriever, writer = ChatMessageRetriever(store, last_k=3), ChatMessageWriter(store)
    key = Secret.from_token("sk-dummy-haystack")
    generator = OpenAIChatGenerator(model="gpt-5-mini", api_base_url=JOB["url"] + "/v1", api_key=key)
    answers = []
    for line in JOB["lines"]:
        asked = ChatMessage.from_user(line)
        shown = retriever.run(chat_history_id="talk", current_messages=[SYSTEM, asked])["messages"]
        said = generator.run(messages=shown)["replies"]
        writer.run(chat_history_id="talk", messages=[asked, *said])
        answers.append(said[0].text)
    print(json.dumps(answers))


main()
