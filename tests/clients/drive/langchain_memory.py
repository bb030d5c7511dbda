"""LangChain's ConversationChain: its memory of so many tokens is written into the only text of every request."""

import json
import sys
import warnings

from langchain_classic.chains import ConversationChain
from langchain_classic.memory import ConversationTokenBufferMemory
from langchain_openai import ChatOpenAI

warnings.filterwarnings("ignore")
JOB = json.load(sys.stdin)


class Model(ChatOpenAI):
    """Four characters are a token: the encoding itself is not on this machine."""

    def get_num_tokens_from_messages(self, messages, tools=None):
        return sum(len(message.content) for message in messages) // 4


def main():
    model = Model(model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-memory")
    chain = ConversationChain(llm=model, memory=ConversationTokenBufferMemory(llm=model, max_token_limit=120))
    print(json.dumps([chain.predict(input=line) for line in JOB["lines"]]))


main()
