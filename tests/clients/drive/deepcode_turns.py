"""DeepCode, a turn at a time in one session, as its command `deepcode exec --resume` runs them."""

import json
import os
import sys
from pathlib import Path

JOB = json.load(sys.stdin)
HOME = Path.home() / ".deepcode"
HOME.mkdir()
CONFIG = {
    "agents": {"defaults": {"provider": "custom", "model": "gpt-4o-mini"}},
    "providers": {"custom": {"apiBase": JOB["url"] + "/v1", "apiKey": "dummy-deepcode", "protocol": "openai_chat"}},
}
(HOME / "deepcode_config.json").write_text(json.dumps(CONFIG))
os.environ["DEEPCODE_HOME"] = str(HOME)

from cli.execution_options import parse_access_preset  # noqa: E402
from cli.headless_turn import run_headless_turn  # noqa: E402
from cli.thread_client import HeadlessTurnOptions  # noqa: E402


def main():
    answers, session = [], None
    for line in JOB["lines"]:
        said = []

        def hear(event, said=said):
            if event.msg.type == "agent_message":
                said.append(event.msg.text)

        options = HeadlessTurnOptions(
            prompt=line, workspace=os.getcwd(), resume_id=session, trust_workspace=True,
            access_preset=parse_access_preset("full-access"),
        )  # fmt: skip
        session = run_headless_turn(options, on_event=hear).session_id
        answers.append(said[-1])
    print("\n" + json.dumps(answers))


main()
