// A Mastra agent, streamed. What becomes of its history is named by the argument: notes in system messages take its place,
// a limit lets in what fits, or calls of tools are left out besides.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Agent } = await load("@mastra/core/agent");
const { TokenLimiterProcessor, ToolCallFilter } = await load("@mastra/core/processors");
const { createTool } = await load("@mastra/core/tools");
const { Memory } = await load("@mastra/memory");
const { LibSQLStore } = await load("@mastra/libsql");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const settings = { name: "scripted", baseURL: job.url + "/v1", apiKey: "sk-dummy-mastra", includeUsage: true };
const model = createOpenAICompatible(settings)("gpt-5-mini");
const shell = createTool({
  id: "shell",
  description: "Runs a command.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => ({ output: (await run(command)).stdout }),
});
const observation = { messageTokens: 350, bufferTokens: false };
const limit = new TokenLimiterProcessor({ limit: 250, trimMode: "best-fit" });
const inputProcessors = { notes: [], limit: [limit], calls: [new ToolCallFilter(), limit] }[process.argv[2]];
const observationalMemory = { model, scope: "thread", observation, reflection: { observationTokens: 4000 } };
const agent = new Agent({
  id: "operator",
  name: "operator",
  instructions: "You help a small team to run its services.",
  model,
  tools: { shell },
  inputProcessors,
  memory: new Memory({
    storage: new LibSQLStore({ id: "talk", url: `file:${process.env.HOME}/talk.db` }),
    options: { lastMessages: 100, ...(process.argv[2] === "notes" && { observationalMemory }) },
  }),
});

const answers = [];
for (const line of job.lines) {
  const stream = await agent.stream(line, { memory: { thread: "talk", resource: "user" }, maxSteps: 5 });
  answers.push(await stream.text);
}
console.log(JSON.stringify(answers));
process.exit(0); // its store keeps the process alive
