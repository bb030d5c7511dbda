"""Programs that use a client's library, one each. They run in that client's own environment, without us.

A program reads one JSON object from standard input: {"url": root of the endpoint, "lines": what the user says}. Its
last line of output is a JSON list: the final answer to each line.
"""
