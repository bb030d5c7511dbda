"""A chain of LangChain classic whose memory sums up what is older, in messages (list) or in its one prompt (text)."""

import json
import sys

from langchain_classic.chains import ConversationChain
from langchain_classic.memory import ConversationSummaryBufferMemory
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_openai import ChatOpenAI

JOB = json.load(sys.stdin)
SYSTEM = "You help a small team to run its services."


class Model(ChatOpenAI):
    """Counts words: the tokenizers' tables would have to be fetched."""

    def get_num_tokens_from_messages(self, messages, tools=None, **more):
        return sum(len(message.text.split()) for message in messages)


def main():
    model = Model(
        model="gpt-5-mini", base_url=JOB["url"] + "/v1", api_key="sk-dummy-langchain", use_responses_api=False
    )
    as_list = sys.argv[1] == "list"
    memory = ConversationSummaryBufferMemory(llm=model, max_token_limit=90, return_messages=as_list)
    prompt = ChatPromptTemplate([("system", SYSTEM), MessagesPlaceholder("history"), ("human", "{input}")])
    chain = ConversationChain(llm=model, memory=memory, **({"prompt": prompt} if as_list else {}))
    print(json.dumps([chain.predict(input=line) for line in JOB["lines"]]))


main()
