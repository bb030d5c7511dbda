// One conversation with an agent of Claude's Agent SDK, which is fed line by line and compacts when its window looks full.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const { query } = await import(pathToFileURL(require.resolve("@anthropic-ai/claude-agent-sdk")));
const job = JSON.parse(await new Response(process.stdin).text());

const answers = [];
let heard;
async function* said() {
  for (const line of job.lines) {
    const answered = new Promise((resolve) => (heard = resolve));
    yield { type: "user", message: { role: "user", content: line }, parent_tool_use_id: null };
    await answered;
  }
}

const options = {
  model: "claude-sonnet-4-5",
  systemPrompt: "You help a small team.",
  permissionMode: "bypassPermissions",
  allowDangerouslySkipPermissions: true,
  settingSources: [],
  env: {
    ...process.env,
    IS_SANDBOX: "1",
    ANTHROPIC_BASE_URL: job.url,
    ANTHROPIC_API_KEY: "sk-ant-dummy-agent-sdk",
    CLAUDE_CODE_AUTO_COMPACT_WINDOW: "100000",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_TELEMETRY: "1",
    DISABLE_AUTOUPDATER: "1",
    DISABLE_ERROR_REPORTING: "1",
  },
};
for await (const message of query({ prompt: said(), options })) {
  if (message.type === "result") {
    answers.push(message.result);
    heard();
  }
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
