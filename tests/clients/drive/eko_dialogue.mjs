// Eko's dialogue, whose memory keeps the newest messages alone.
import { pathToFileURL } from "node:url";
import { execSync } from "node:child_process";

const root = process.env.CLIENT_FOLDER + "/node_modules/";
const { EkoDialogue, EkoMemory } = await import(pathToFileURL(root + "@eko-ai/eko/dist/index.esm.js"));
const job = JSON.parse(await new Response(process.stdin).text());

const model = { provider: "openai", model: "gpt-5-mini", apiKey: "sk-dummy-eko", config: { baseURL: job.url + "/v1" } };
const shell = {
  name: "shell",
  description: "Runs a command.",
  parameters: { type: "object", properties: { command: { type: "string" } }, required: ["command"] },
  async execute({ command }) {
    return { content: [{ type: "text", text: execSync(command, { encoding: "utf8" }) }] };
  },
};
const memory = new EkoMemory("You help a small team to run its services.", [], { maxMessages: 6 });
const dialogue = new EkoDialogue({ llms: { default: model } }, memory, [shell]);

const answers = [];
for (const line of job.lines) answers.push(await dialogue.chat({ user: line }));
console.log("\n" + JSON.stringify(answers));
process.exit(0);
