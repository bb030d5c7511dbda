// A deep agent of LangChain.js: it summarises what its model's window does not hold, also while a turn is at work.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { createDeepAgent } = await load("deepagents");
const { ChatOpenAI } = await load("@langchain/openai");
const { tool } = await load("langchain");
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const configuration = { baseURL: job.url + "/v1" };
const model = new ChatOpenAI({ model: "gpt-5-mini", apiKey: "sk-dummy-deepagents", configuration });
Object.defineProperty(model, "profile", { value: { maxInputTokens: 600 } });
const shell = tool(async ({ command }) => (await run(command)).stdout, {
  name: "shell",
  description: "Runs a command.",
  schema: z.object({ command: z.string() }),
});
const agent = createDeepAgent({ model, tools: [shell], systemPrompt: "You help a small team to run its services." });

let state = { messages: [] };
const answers = [];
for (const line of job.lines) {
  const messages = [...state.messages, { role: "user", content: line }];
  state = await agent.invoke({ ...state, messages }, { recursionLimit: 60 });
  answers.push(state.messages.at(-1).text);
}
console.log(JSON.stringify(answers));
