// An agent of AI SDK Tools, which is given the newest messages of its memory.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { Agent } = await load("@ai-sdk-tools/agents");
const { InMemoryProvider } = await load("@ai-sdk-tools/memory/in-memory");
const { createOpenAI } = await load("@ai-sdk/openai");
const { tool } = await load("ai");
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const openai = createOpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-ai-sdk-tools" });
const run = promisify(exec);

const shell = tool({
  description: "Runs a command.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => (await run(command)).stdout,
});
const agent = new Agent({
  name: "operator",
  instructions: "You help a small team to run its services.",
  model: openai.chat("gpt-4.1-mini"),
  tools: { shell },
  memory: { provider: new InMemoryProvider(), history: { enabled: true, limit: 6 } },
});

const answers = [];
for (const [at, line] of job.lines.entries()) {
  const message = { id: `line-${at}`, role: "user", parts: [{ type: "text", text: line }] };
  const answer = await agent.toUIMessageStream({ message, context: { chatId: "talk", userId: "user" } }).text();
  const said = answer.split("\n").filter((each) => each.startsWith("data: {")).map((each) => JSON.parse(each.slice(6)));
  answers.push(said.filter(({ type }) => type === "text-delta").map(({ delta }) => delta).join(""));
  await new Promise((resolve) => setTimeout(resolve, 200)); // its memory is written behind the answer
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
