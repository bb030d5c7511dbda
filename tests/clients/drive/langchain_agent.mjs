// An agent of LangChain.js with middleware, named by the argument: a summary of the older messages, the newest alone, or
// results that are cleared.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { createAgent, createMiddleware, tool, ...langchain } = await load("langchain");
const { ClearToolUsesEdit, contextEditingMiddleware, summarizationMiddleware } = langchain;
const { trimMessages } = await load("@langchain/core/messages");
const { MemorySaver } = await load("@langchain/langgraph");
const { ChatOpenAI } = await load("@langchain/openai");
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const configuration = { baseURL: job.url + "/v1" };
const model = new ChatOpenAI({ model: "gpt-5-mini", apiKey: "sk-dummy-langchain-js", configuration });
const shell = tool(async ({ command }) => (await run(command)).stdout, {
  name: "shell",
  description: "Runs a command.",
  schema: z.object({ command: z.string() }),
});
const newest = { maxTokens: 6, tokenCounter: (messages) => messages.length, strategy: "last", startOn: "human" };
const middleware = {
  summary: summarizationMiddleware({ model, trigger: { messages: 8 }, keep: { messages: 3 } }),
  clear: contextEditingMiddleware({
    edits: [new ClearToolUsesEdit({ trigger: { messages: 8 }, keep: { messages: 1 } })],
  }),
  trim: createMiddleware({
    name: "trim",
    wrapModelCall: async (request, next) =>
      next({ ...request, messages: await trimMessages(request.messages, newest) }),
  }),
}[process.argv[2]];
const checkpointer = new MemorySaver();
const systemPrompt = "You help a small team to run its services.";
const agent = createAgent({ model, tools: [shell], systemPrompt, middleware: [middleware], checkpointer });

const answers = [];
for (const line of job.lines) {
  const said = { messages: [{ role: "user", content: line }] };
  const { messages } = await agent.invoke(said, { configurable: { thread_id: "talk" } });
  answers.push(messages.at(-1).text);
}
console.log(JSON.stringify(answers));
process.exit(0);
