"""How an upstream fails: httpx's errors by the same names, so that most requests do without importing httpx."""


class TransportError(Exception):
    """There is no answer, or only a part of it."""


class TimeoutException(TransportError): ...


class ConnectTimeout(TimeoutException): ...


class ReadTimeout(TimeoutException): ...


class WriteTimeout(TimeoutException): ...


class ConnectError(TransportError): ...


class ReadError(TransportError): ...


class WriteError(TransportError): ...


class LocalProtocolError(TransportError):
    """The request to be sent is not valid HTTP."""


class RemoteProtocolError(TransportError):
    """The answer is not valid HTTP, or breaks off."""
