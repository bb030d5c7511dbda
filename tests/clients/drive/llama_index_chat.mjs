// LlamaIndex.TS with a memory that sums up what does not fit, in a system message of its own behind the first.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { ChatSummaryMemoryBuffer } = await load("@llamaindex/core/memory");
const { OpenAI } = await load("@llamaindex/openai");
const job = JSON.parse(await new Response(process.stdin).text());

class Model extends OpenAI {
  get metadata() {
    return { ...super.metadata, contextWindow: 300 };
  }
}
const llm = new Model({ model: "gpt-4o-mini", apiKey: "sk-dummy-llama-index", baseURL: job.url + "/v1", maxTokens: 150 });
const memory = new ChatSummaryMemoryBuffer({ llm, messages: [{ role: "system", content: "You help a small team." }] });

const answers = [];
for (const line of job.lines) {
  memory.put({ role: "user", content: line });
  const { message } = await llm.chat({ messages: await memory.getMessages() });
  memory.put(message);
  answers.push(message.content);
}
console.log(JSON.stringify(answers));
process.exit(0); // it waits for its connections
