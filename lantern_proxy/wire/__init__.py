"""Protocols: bytes <-> record. Each module reads one protocol into `turn.Request` and `turn.Answer`, and writes blocks into it.

chat, responses, messages   read(body) -> Request, read_answer(...) -> Answer, inject(body, inserts) -> body
sse                         server-sent events
json                        the parts of a JSON body, with the place where each stands
"""
