"""A text in lower case as `re.I` compares it, so that cheap tests may stand before patterns. Pure."""

_ODD = (("\u0130", "i"), ("\u0131", "i"), ("\u017f", "s"), ("\u212a", "k"))
"""What `re.I` takes for an ASCII letter, beside the letter in both cases."""


def folded(text: str) -> str:
    """`text` in lower case: an ASCII word stands in it wherever the word's pattern would be found with `re.I`."""
    if not text.isascii():
        for sign, letter in _ODD:
            text = text.replace(sign, letter)
    return text.lower()
