// The OpenAI SDK for Node, Responses, streamed; POST /responses/compact when the window is full.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")));
const job = JSON.parse(await new Response(process.stdin).text());
const client = new OpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-openai-node" });
const instructions = "You help a small team to run its services. Be brief.";

let input = [];
const answers = [];
for (const line of job.lines) {
  input.push({ role: "user", content: line });
  const stream = await client.responses.create({ model: "gpt-5-mini", instructions, input, store: false, stream: true });
  let answer = "";
  let done;
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") answer += event.delta;
    if (event.type === "response.completed") done = event.response;
  }
  input.push(...done.output);
  answers.push(answer);
  if (done.usage.input_tokens > 100_000) {
    const compacted = await client.responses.compact({ model: "gpt-5-mini", instructions, input });
    input = compacted.output.filter((item) => item.type === "compaction");
  }
}
console.log(JSON.stringify(answers));
