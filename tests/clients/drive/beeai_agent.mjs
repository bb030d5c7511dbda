// A BeeAI agent in TypeScript whose memory slides. It answers by a tool.
import { exec } from "node:child_process";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const load = (path) => import(pathToFileURL(`${process.env.CLIENT_FOLDER}/node_modules/${path}.js`));
const { RequirementAgent } = await load("beeai-framework/dist/agents/requirement/agent");
const { OpenAIChatModel } = await load("beeai-framework/dist/adapters/openai/backend/chat");
const { SlidingMemory } = await load("beeai-framework/dist/memory/slidingMemory");
const { DynamicTool, StringToolOutput } = await load("beeai-framework/dist/tools/base");
const { z } = await load("zod/index");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const llm = new OpenAIChatModel("gpt-5-mini", {}, { baseURL: job.url + "/v1", apiKey: "sk-dummy-beeai" });
const shell = new DynamicTool({
  name: "shell",
  description: "Runs a command.",
  inputSchema: z.object({ command: z.string() }),
  handler: async ({ command }) => new StringToolOutput((await run(command)).stdout),
});
const agent = new RequirementAgent({ llm, memory: new SlidingMemory({ size: 9 }), tools: [shell] });

const answers = [];
for (const prompt of job.lines) answers.push((await agent.run({ prompt })).result.text);
console.log(JSON.stringify(answers));
