// A VoltAgent agent with summarisation on: the older messages of its memory become a summary.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Agent, InMemoryStorageAdapter, Memory, createTool } = await load("@voltagent/core");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const settings = { name: "scripted", baseURL: job.url + "/v1", apiKey: "sk-dummy-voltagent", includeUsage: true };
const shell = createTool({
  name: "shell",
  description: "Runs a command.",
  parameters: z.object({ command: z.string() }),
  execute: async ({ command }) => (await run(command)).stdout,
});
const agent = new Agent({
  name: "operator",
  instructions: "You help a small team to run its services.",
  model: createOpenAICompatible(settings)("gpt-5-mini"),
  tools: [shell],
  memory: new Memory({ storage: new InMemoryStorageAdapter() }),
  summarization: { enabled: true, triggerTokens: 150, keepMessages: 4, maxOutputTokens: 300 },
});

const answers = [];
for (const line of job.lines) {
  const result = await agent.generateText(line, { userId: "user", conversationId: "talk", maxSteps: 5 });
  answers.push(result.text);
  await new Promise((resolve) => setTimeout(resolve, 400)); // its memory is written behind the answer
}
console.log(JSON.stringify(answers));
process.exit(0); // its observability keeps the process alive
