// LibreChat's agents library, streamed: the oldest messages that its window does not hold are left out.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Run } = await load("@librechat/agents");
const { HumanMessage } = await load("@langchain/core/messages");
const { tool } = await load("@langchain/core/tools");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const shell = tool(async ({ command }) => (await run(command)).stdout, {
  name: "shell",
  description: "Runs a command.",
  schema: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
});
const tokenCounter = (message) => Math.ceil(JSON.stringify(message.content).length / 4);
const llmConfig = {
  provider: "openAI",
  model: "gpt-4.1-mini",
  streaming: true,
  apiKey: "sk-dummy-librechat",
  configuration: { baseURL: job.url + "/v1" },
};

const messages = [];
const answers = [];
for (const line of job.lines) {
  messages.push(new HumanMessage(line));
  const indexTokenCountMap = Object.fromEntries(messages.map((message, i) => [i, tokenCounter(message)]));
  const graphConfig = {
    type: "standard",
    llmConfig,
    instructions: "You help a small team to run its services.",
    tools: [shell],
    maxContextTokens: 700,
  };
  const turn = await Run.create({ runId: `run-${messages.length}`, graphConfig, tokenCounter, indexTokenCountMap });
  await turn.processStream({ messages: [...messages] }, { configurable: { thread_id: "talk" }, version: "v2" });
  messages.push(...turn.getRunMessages());
  answers.push(messages.at(-1).text);
}
console.log(JSON.stringify(answers));
process.exit(0); // its tracing keeps the process alive
