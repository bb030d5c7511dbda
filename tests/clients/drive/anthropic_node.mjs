// The Anthropic SDK for Node, Messages, not streamed; a window that forgets the oldest turns without a word.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const { default: Anthropic } = await import(pathToFileURL(require.resolve("@anthropic-ai/sdk")));
const job = JSON.parse(await new Response(process.stdin).text());
const client = new Anthropic({ baseURL: job.url, apiKey: "sk-ant-dummy-anthropic-node" });
const KEPT = 7; // messages, the newest one of the user included

let messages = [];
const answers = [];
for (const line of job.lines) {
  messages.push({ role: "user", content: line });
  messages = messages.slice(-KEPT);
  const message = await client.messages.create({
    model: "claude-sonnet-4-5",
    max_tokens: 1000,
    system: "You help a small team to run its services. Be brief.",
    messages,
  });
  messages.push({ role: message.role, content: message.content });
  answers.push(message.content[0].text);
}
console.log(JSON.stringify(answers));
