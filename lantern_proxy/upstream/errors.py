"""How an upstream fails: httpx's errors by the same names, so that most requests do without importing httpx."""


class TransportError(Exception):
    """No answer, or not all of it."""


class TimeoutException(TransportError): ...


class ConnectTimeout(TimeoutException): ...


class ReadTimeout(TimeoutException): ...


class WriteTimeout(TimeoutException): ...


class ConnectError(TransportError): ...


class ReadError(TransportError): ...


class WriteError(TransportError): ...


class LocalProtocolError(TransportError):
    """What is to be sent is no HTTP."""


class RemoteProtocolError(TransportError):
    """What came is no HTTP, or breaks off."""
