// An agent of the OpenAI Agents SDK for JavaScript whose session has its items compacted by the server, by their ids or
// by the items themselves, or that shows no more than its newest items.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name, from = require) => import(pathToFileURL(from.resolve(name)));
const agents = await load("@openai/agents");
const { OpenAI } = await load("openai", createRequire(require.resolve("@openai/agents")));
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);
const [how] = process.argv.slice(2);

const client = new OpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-agents-js" });
agents.setTracingDisabled(true);
agents.setDefaultOpenAIClient(client);
const shell = agents.tool({
  name: "shell",
  description: "Runs a command.",
  parameters: z.object({ command: z.string() }),
  execute: async ({ command }) => (await run(command)).stdout,
});
const model = "gpt-5.1";
const modelSettings = how === "chain" ? {} : { store: false };
const agent = new agents.Agent({ name: "operator", instructions: "You help a small team.", model, tools: [shell], modelSettings });
const memory = new agents.MemorySession();
const compacted = () =>
  new agents.OpenAIResponsesCompactionSession({
    client,
    model,
    underlyingSession: memory,
    compactionMode: how === "chain" ? "auto" : "input",
    shouldTriggerCompaction: ({ compactionCandidateItems }) => compactionCandidateItems.length >= 6,
  });
const newest = { session: memory, sessionInputCallback: (history, fresh) => [...history.slice(-4), ...fresh] };
const options = how === "newest" ? newest : { session: compacted() };

const answers = [];
for (const line of job.lines) {
  answers.push((await agents.run(agent, line, options)).finalOutput);
}
console.log(JSON.stringify(answers));
