"""What the user says to every client, and what the scripted model answers.

The details are unique values in plain sentences: in what the user says, in files that a tool reads, and in answers. The
summary that the scripted model writes holds none of them, so whatever a client drops is lost to its model.
"""

from dataclasses import dataclass

RUN = "RUN: "
"""What the user writes before a shell command that the model shall run."""

SUMMARY = (
    "The user and the assistant went through the state of a small project. Some facts were noted, files were read, and "
    "work goes on with the next question."
)
"""The vague summary, without its number."""


def numbered(number: int) -> str:
    """What ends the summary of that number, from 1; no two summaries are the same."""
    return f"This is summary number {number}."


FILES = {
    "deploy.txt": (
        "The blue cluster is deployed from build 4471-k, and Ola Brekke signs it off.\n"
        "Its health check is GET /ready/v3, which times out after 1730 ms.\n"
    ),
    "audit.txt": (
        "The audit found that lic-07.kestrel.example still runs kernel 5.10.218.\n"
        "Ingrid Tveit promised the fix for 14 March.\n"
    ),
}

DETAILS = (
    "54817", "Marit Solheim", "4471-k", "Ola Brekke", "/ready/v3", "1730 ms", "heron/amber-212", "03:42",
    "kestrel-archive-eu", "OPS-8841", "7.19.3", "parser_pool.c", "lic-07.kestrel.example", "5.10.218", "Ingrid Tveit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says and what the model answers in the end."""

    said: str
    answer: str


def turns(*, tools: bool) -> tuple[Turn, ...]:
    """The conversation. Without tools the user pastes the files instead of having them read."""

    def read(name: str) -> str:
        pasted = f"Here is {name}, so that you have it: {' '.join(FILES[name].split())}"
        return f"Please do {RUN}cat {name}" if tools else pasted

    return (
        Turn(
            "Hello. Please keep in mind that our staging database listens on port 54817 and belongs to Marit Solheim.",
            "Understood, I will keep that in mind while we work.",
        ),
        Turn(read("deploy.txt"), "I have read it. I named the branch for the rollout heron/amber-212, as you like it."),
        Turn(
            "The invoice export runs at 03:42 and writes to the bucket kestrel-archive-eu; ticket OPS-8841 tracks it.",
            "Thank you, that is good to know for the export.",
        ),
        Turn(
            "We froze release 7.19.3 because of the memory leak in parser_pool.c.",
            "All right, the release stays frozen until the leak is gone.",
        ),
        Turn(read("audit.txt"), "I have read the audit as well; there is one machine to look after."),
        Turn("Good. Let us go on with the next part of the work.", "Gladly. What would you like to look at first?"),
        Turn(
            "Please tell me who owns the staging database and which port it listens on.",
            "Both were said at the very beginning of our talk.",
        ),
        Turn(
            "And when does the invoice export run, and which ticket tracks it?",
            "You gave me the time and the ticket earlier on.",
        ),
    )


OVERFLOWS = (4, 6)
"""From each of the turns of these indices on, the scripted upstream reports a full window until the client compacts."""
