// The npm package `chatgpt`: messages are followed back from the newest until its window is full.
import { pathToFileURL } from "node:url";

const { ChatGPTAPI } = await import(pathToFileURL(process.env.CLIENT_FOLDER + "/node_modules/chatgpt/build/index.js"));
const job = JSON.parse(await new Response(process.stdin).text());
const api = new ChatGPTAPI({
  apiKey: "sk-dummy-chatgpt",
  apiBaseUrl: job.url + "/v1",
  systemMessage: "You help a small team.",
  maxModelTokens: 420,
  maxResponseTokens: 100,
  completionParams: { model: "gpt-4" },
});

let parentMessageId;
const answers = [];
for (const line of job.lines) {
  const message = await api.sendMessage(line, { parentMessageId, onProgress: () => {} });
  parentMessageId = message.id;
  answers.push(message.text);
}
console.log(JSON.stringify(answers));
process.exit(0); // its store keeps the process alive
