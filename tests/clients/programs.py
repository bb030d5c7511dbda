"""Drivers for libraries: run the program in drive/ with the client's own Python or Node."""

import json
from pathlib import Path

from clients.client import Drive, Job

_DRIVE = Path(__file__).with_name("drive")


def program(name: str, *arguments: str) -> Drive:
    """A driver that runs drive/NAME with `arguments`, whose last line of output is a JSON list of answers."""

    def drive(job: Job) -> list[str]:
        said = json.dumps({"url": job.url, "lines": job.lines})
        interpreter = "node" if name.endswith(".mjs") else str(job.folder / "bin/python")
        out = job.run([interpreter, str(_DRIVE / name), *arguments], {"CLIENT_FOLDER": str(job.folder)}, said)
        answers: list[str] = json.loads(out.strip().splitlines()[-1])
        return answers

    return drive
