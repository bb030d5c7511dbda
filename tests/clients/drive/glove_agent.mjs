// An agent of Glove, which has its history summed up in the midst of a turn, as soon as a tool was called.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { execSync } from "node:child_process";

const root = process.env.CLIENT_FOLDER + "/node_modules/";
const load = (name) => import(pathToFileURL(root + name));
const { Glove } = await load("glove-core/dist/glove.js");
const { Displaymanager } = await load("glove-core/dist/display-manager.js");
const { AnthropicAdapter } = await load("glove-core/dist/models/anthropic.js");
const { OpenAICompatAdapter } = await load("glove-core/dist/models/openai-compat.js");
const { z } = await load("zod/index.js");
const job = JSON.parse(await new Response(process.stdin).text());

const messages = process.argv[2] === "messages";
const reached = { apiKey: "sk-dummy-glove", model: messages ? "claude-sonnet-4-5" : "gpt-4.1", maxTokens: 4096 };
const model = messages
  ? new AnthropicAdapter({ ...reached, baseURL: job.url, stream: true, cache: true })
  : new OpenAICompatAdapter({ ...reached, baseURL: job.url + "/v1", stream: true });
const agent = new Glove({
  model,
  displayManager: new Displaymanager(),
  systemPrompt: "You help a small team to run its services.",
  serverMode: true,
  compaction_config: { compaction_instructions: "Summarize the conversation so far.", compaction_context_limit: 100_000 },
})
  .fold({
    name: "shell",
    description: "Runs a command.",
    inputSchema: z.object({ command: z.string() }),
    async do({ command }) {
      return { status: "success", data: execSync(command, { encoding: "utf8" }) };
    },
  })
  .build();

const answers = [];
for (const line of job.lines) {
  const { messages } = await agent.processRequest(line);
  answers.push(messages.at(-1).text);
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
