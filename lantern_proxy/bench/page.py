"""A page of the documentation that a bench writes into: its own section, and nothing of what stands around it."""

from pathlib import Path


def write_section(page: Path, title: str, section: str) -> None:
    """Put `section`, which begins with its `## heading`, where the page has one of that heading, else at its end.

    title: of a page that is not there yet
    """
    heading = section.partition("\n")[0]
    old = page.read_text("utf-8") if page.exists() else f"# {title}\n"
    above, _, rest = old.partition(f"\n{heading}\n")
    _, following, below = rest.partition("\n## ")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{above.rstrip()}\n\n{section.rstrip()}\n{following}{below}", "utf-8")
