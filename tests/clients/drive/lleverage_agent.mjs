// An agent of Lleverage's SDK, which has itself sum up what is older than its last messages, under its own prompt and with
// its own tools; its summaries are summed up again.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const sdk = process.env.CLIENT_FOLDER + "/node_modules/@lleverage-ai/agent-sdk/dist/index.js";
const { MemorySaver, createAgent, createContextManager } = await import(pathToFileURL(sdk));
const { jsonSchema, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const job = JSON.parse(await new Response(process.stdin).text());
const openai = createOpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-lleverage" });
const run = promisify(exec);

const shell = tool({
  description: "Runs a command.",
  inputSchema: jsonSchema({ type: "object", properties: { command: { type: "string" } }, required: ["command"] }),
  execute: async ({ command }) => (await run(command)).stdout,
});
const contextManager = createContextManager({
  maxTokens: 100_000,
  summarization: {
    keepMessageCount: 3, keepToolResultCount: 0, strategy: "tiered", enableTieredSummaries: true, messagesPerTier: 1,
  },
});
const agent = createAgent({
  model: openai.chat("gpt-4.1-mini"),
  systemPrompt: "You help a small team to run its services.",
  tools: { shell },
  contextManager,
  maxSteps: 5,
  permissionMode: "bypassPermissions",
  checkpointer: new MemorySaver(),
});

const answers = [];
for (const prompt of job.lines) answers.push((await agent.generate({ prompt, threadId: "talk" })).text);
console.log("\n" + JSON.stringify(answers));
process.exit(0);
