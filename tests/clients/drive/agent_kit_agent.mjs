// An agent of Inngest's AgentKit, whose history is kept by its own hooks: its newest results alone are given to it. What
// is asked stands in front of the history.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { AgentResult, createAgent, createNetwork, createState, createTool, openai } = await load("@inngest/agent-kit");
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const shell = createTool({
  name: "shell",
  description: "Runs a command.",
  parameters: z.object({ command: z.string() }),
  handler: async ({ command }) => (await run(command)).stdout,
});
const agent = createAgent({
  name: "operator",
  system: "You help a small team to run its services.",
  tools: [shell],
  model: openai({ model: "gpt-5-mini", apiKey: "dummy-agent-kit", baseUrl: job.url + "/v1/" }),
});
const kept = [];
const said = (content) => ({ type: "text", role: "user", content, stop_reason: "stop" });
const network = createNetwork({
  name: "talk",
  agents: [agent],
  maxIter: 3,
  router: ({ callCount, lastResult }) => (callCount === 0 || lastResult.toolCalls.length ? agent : undefined),
  history: {
    get: async () => kept.slice(-6),
    appendResults: async ({ input, newResults }) => {
      kept.push(new AgentResult("user", [said(input)], [], new Date()), ...newResults);
    },
  },
});

const answers = [];
for (const line of job.lines) {
  const { state } = await network.run(line, { state: createState({}, { threadId: "talk" }) });
  answers.push(state.results.at(-1).output.at(-1).content);
}
console.log(JSON.stringify(answers));
process.exit(0);
