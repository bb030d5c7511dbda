// A chat whose history is compacted by Cloudflare's agents: its first three messages and the newest stay, and a summary
// of what stood between them takes its place; later ones stand beside it.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const sessions = process.env.CLIENT_FOLDER + "/node_modules/agents/dist/sessions/index.js";
const { COMPACTION_PREFIX, createCompactFunction } = await import(pathToFileURL(sessions));
const { convertToModelMessages, generateText, jsonSchema, readUIMessageStream, stepCountIs, streamText, tool } =
  await load("ai");
const { createOpenAI } = await load("@ai-sdk/openai");
const job = JSON.parse(await new Response(process.stdin).text());
const model = createOpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-cloudflare" }).chat("gpt-4.1-mini");
const run = promisify(exec);

const shell = tool({
  description: "Runs a command.",
  inputSchema: jsonSchema({ type: "object", properties: { command: { type: "string" } }, required: ["command"] }),
  execute: async ({ command }) => (await run(command)).stdout,
});
const compact = createCompactFunction({
  summarize: async (prompt) => (await generateText({ model, prompt })).text,
  keepRecentTokens: 60,
});
const history = [];
const overlays = [];

// The history with each summary in the place of what it stands for, as its storage shows it; that runs in Workers alone.
function shown() {
  const found = [];
  for (let at = 0; at < history.length; at++) {
    const over = overlays.filter((each) => each.fromMessageId === history[at].id).at(-1);
    if (over) {
      const parts = [{ type: "text", text: over.summary }];
      found.push({ id: COMPACTION_PREFIX + overlays.indexOf(over), role: "assistant", parts });
      at = history.findIndex((message) => message.id === over.toMessageId);
    } else {
      found.push(history[at]);
    }
  }
  return found;
}

const answers = [];
for (const text of job.lines) {
  history.push({ id: `m${history.length}`, role: "user", parts: [{ type: "text", text }] });
  const messages = await convertToModelMessages(shown());
  const asked = { model, system: "You help a small team.", messages, tools: { shell }, stopWhen: stepCountIs(5) };
  let last;
  for await (const message of readUIMessageStream({ stream: streamText(asked).toUIMessageStream() })) last = message;
  history.push({ ...last, id: `m${history.length}` });
  answers.push(last.parts.map((part) => (part.type === "text" ? part.text : "")).join(""));
  const made = history.length >= 8 ? await compact(shown()) : null;
  if (made) overlays.push(made);
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
