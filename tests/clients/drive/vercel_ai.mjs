// The Vercel AI SDK over Responses: earlier answers go by their id alone.
// By its argument: "window" drops the oldest turns; "final" keeps all turns, but no tool traffic of those that are over;
// "prune" has the SDK take the tool traffic out of all but the last messages, before each step.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { generateText, jsonSchema, pruneMessages, stepCountIs, tool } = await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const job = JSON.parse(await new Response(process.stdin).text());
const openai = createOpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-vercel-ai" });
const run = promisify(exec);
const forgets = process.argv[2];
const KEPT = 7; // messages, the newest one of the user included

const shell = tool({
  description: "Runs a command.",
  inputSchema: jsonSchema({ type: "object", properties: { command: { type: "string" } }, required: ["command"] }),
  execute: async ({ command }) => (await run(command)).stdout,
});

const pruned = (messages) => pruneMessages({ messages, reasoning: "all", toolCalls: "before-last-2-messages" });

let messages = [];
const answers = [];
for (const line of job.lines) {
  messages.push({ role: "user", content: line });
  if (forgets === "window") messages = messages.slice(-KEPT);
  while (messages[0].role !== "user") messages.shift();
  const result = await generateText({
    model: openai.responses("gpt-4.1-mini"),
    instructions: "You help a small team to run its services. Be brief.",
    messages,
    tools: { shell },
    stopWhen: stepCountIs(5),
    prepareStep: ({ messages }) => (forgets === "prune" ? { messages: pruned(messages) } : {}),
    providerOptions: { openai: { store: true } },
  });
  messages.push(...(forgets === "window" ? result.responseMessages : result.response.messages));
  answers.push(result.text);
}
console.log(JSON.stringify(answers));
