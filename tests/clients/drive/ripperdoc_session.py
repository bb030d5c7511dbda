"""A session of Ripperdoc's terminal, whose user has it compact. argv: `native`, or `text`: answers as JSON."""

import json
import os
import sys
from pathlib import Path

JOB = json.load(sys.stdin)
HOME = Path(os.environ["HOME"])
PROFILE = {
    "protocol": "openai_compatible", "model": "gpt-5-mini", "api_base": JOB["url"] + "/v1",
    "api_key": "sk-dummy-ripperdoc", "openai_mode": "legacy", "openai_tool_mode": sys.argv[1],
}  # fmt: skip
CONFIG = {"model_profiles": {"main": PROFILE}, "model_pointers": {"main": "main", "quick": "main"}}
(HOME / ".ripperdoc").mkdir()
(HOME / ".ripperdoc/config.json").write_text(json.dumps(CONFIG))

from ripperdoc.cli.ui.rich_ui.session import RichUI  # noqa: E402

COMPACTED_AFTER = (4, 6)


def main():
    ui = RichUI(yolo_mode=True, allowed_tools=["Bash"], custom_system_prompt="You help a small team.")
    answers = []
    for n, line in enumerate(JOB["lines"]):
        ui.run_async(ui.process_query(line))
        content = ui.conversation_messages[-1].message.content
        answers.append(content if isinstance(content, str) else "".join(part.text or "" for part in content))
        if n in COMPACTED_AFTER:
            ui.run_async(ui._run_manual_compact(""))
    print("\n" + json.dumps(answers), flush=True)
    os._exit(0)


main()
