// The client of @waylaidwanderer/chatgpt-api: the system says it all, the newest lines in one text.
import { pathToFileURL } from "node:url";

const source = process.env.CLIENT_FOLDER + "/node_modules/@waylaidwanderer/chatgpt-api/src/ChatGPTClient.js";
const { default: ChatGPTClient } = await import(pathToFileURL(source));
const job = JSON.parse(await new Response(process.stdin).text());

const client = new ChatGPTClient("sk-dummy-chatgpt", {
  reverseProxyUrl: job.url + "/v1/chat/completions",
  modelOptions: { model: "gpt-3.5-turbo", max_tokens: 100 },
  maxContextTokens: 400,
  maxPromptTokens: 230,
});

const answers = [];
let last = {};
for (const line of job.lines) {
  last = await client.sendMessage(line, { conversationId: last.conversationId, parentMessageId: last.messageId });
  answers.push(last.response);
}
console.log(JSON.stringify(answers));
process.exit(0);
