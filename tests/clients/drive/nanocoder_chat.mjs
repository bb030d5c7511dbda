// Nanocoder's own client and compaction: what is old is cut short in its place, by rules and not by a model.
import { exec } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const root = process.env.CLIENT_FOLDER + "/node_modules/@nanocollective/nanocoder/dist/";
const load = (name) => import(pathToFileURL(`${root}${name}.js`));
const job = JSON.parse(await new Response(process.stdin).text());
const provider = { name: "lantern", baseUrl: job.url + "/v1", apiKey: "sk-dummy-nanocoder", models: ["gpt-5-mini"] };
await writeFile("agents.config.json", JSON.stringify({ nanocoder: { providers: [provider] } }));
const { createLLMClient } = await load("client-factory");
const { performAutoCompact } = await load("utils/auto-compact");
const { setSessionContextLimit } = await load("models/index");
const { tool, jsonSchema } = await import(pathToFileURL(process.env.CLIENT_FOLDER + "/node_modules/ai/dist/index.js"));
const run = promisify(exec);

const { client } = await createLLMClient("lantern", "gpt-5-mini");
const command = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const tools = { shell: tool({ description: "Runs a command.", inputSchema: jsonSchema(command) }) };
const system = { role: "system", content: "You help a small team." };
const compacting = { enabled: true, threshold: 50, mode: process.argv[2], notifyUser: false };
setSessionContextLimit(500);

let messages = [];
async function said() {
  const { message } = (await client.chat([system, ...messages], tools, {})).choices[0];
  messages.push(message);
  const compacted = await performAutoCompact(messages, system, "lantern", "gpt-5-mini", compacting);
  messages = compacted ?? messages;
  return message;
}

const answers = [];
for (const line of job.lines) {
  messages.push({ role: "user", content: line });
  let message = await said();
  while (message.tool_calls?.length) {
    for (const { id, function: called } of message.tool_calls) {
      const args = typeof called.arguments === "string" ? JSON.parse(called.arguments) : called.arguments;
      messages.push({ role: "tool", tool_call_id: id, name: called.name, content: (await run(args.command)).stdout });
    }
    message = await said();
  }
  answers.push(message.content);
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
