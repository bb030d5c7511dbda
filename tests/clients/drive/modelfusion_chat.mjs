// A chat with ModelFusion, which trims the prompt to the newest pairs of messages that fit.
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const { generateText, openai, trimChatPrompt } = require("modelfusion");
const job = JSON.parse(await new Response(process.stdin).text());

const { hostname: host, port } = new URL(job.url);
const api = openai.Api({ baseUrl: { protocol: "http", host, port, path: "/v1" }, apiKey: "sk-dummy-modelfusion" });
const model = openai.ChatTextGenerator({ api, model: "gpt-4" }).withChatPrompt();
// its own way to count reads a vocabulary anew for every message
const counting = { countPromptTokens: async (prompt) => JSON.stringify(prompt).length / 4 };
const system = "You help a small team to run its services.";
const messages = [];
const answers = [];
for (const content of job.lines) {
  messages.push({ role: "user", content });
  const prompt = await trimChatPrompt({ prompt: { system, messages }, model: counting, tokenLimit: 230 });
  answers.push(await generateText({ model, prompt }));
  messages.push({ role: "assistant", content: answers.at(-1) });
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
