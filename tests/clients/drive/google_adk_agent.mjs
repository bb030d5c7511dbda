// A Google ADK agent for Node, whose model is OpenAI's SDK behind its interface for models of others. Its history is
// compacted as the argument says: "tokens" sums up the oldest events, "anchored" keeps one summary, "truncate" drops them.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const adk = await load("@google/adk");
const { default: OpenAI } = await load("openai");
const job = JSON.parse(await new Response(process.stdin).text());
const client = new OpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-google-adk" });
const run = promisify(exec);
const call = ({ id, name, args }) => ({ id, type: "function", function: { name, arguments: JSON.stringify(args) } });

function* written({ role, parts }) {
  for (const { functionResponse: done } of parts.filter((part) => part.functionResponse))
    yield { role: "tool", tool_call_id: done.id, content: JSON.stringify(done.response) };
  const text = parts.map((part) => part.text ?? "").join("");
  const tool_calls = parts.filter((part) => part.functionCall).map((part) => call(part.functionCall));
  if (tool_calls.length) yield { role: "assistant", content: text || null, tool_calls };
  else if (text) yield { role: role === "model" ? "assistant" : "user", content: text };
}

class Model extends adk.BaseLlm {
  async *generateContentAsync({ contents, config }) {
    const system = config?.systemInstruction;
    const declared = config?.tools?.flatMap((each) => each.functionDeclarations) ?? [];
    const parameters = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
    const done = await client.chat.completions.create({
      model: this.model,
      messages: [...(system ? [{ role: "system", content: system }] : []), ...contents.flatMap((each) => [...written(each)])],
      ...(declared.length && {
        tools: declared.map(({ name, description }) => ({ type: "function", function: { name, description, parameters } })),
      }),
    });
    const { content, tool_calls: calls } = done.choices[0].message;
    const parts = calls?.map(({ id, function: { name, arguments: given } }) => ({
      functionCall: { id, name, args: JSON.parse(given) },
    }));
    yield {
      content: { role: "model", parts: parts ?? [{ text: content }] },
      usageMetadata: { promptTokenCount: done.usage.prompt_tokens },
    };
  }
}

const model = new Model({ model: "gpt-5-mini" });
const summarizer = new adk.LlmSummarizer({ llm: model });
const limits = { tokenThreshold: 100_000, eventRetentionSize: 2, summarizer };
const compactor = {
  tokens: () => new adk.TokenBasedContextCompactor(limits),
  anchored: () => new adk.AnchoredContextCompactor({ ...limits, tokenThreshold: 100 }),
  truncate: () => new adk.TruncatingContextCompactor({ threshold: 7 }),
}[process.argv[2]]();
// its compactors tell events apart by their milliseconds
const pause = { shouldCompact: () => new Promise((done) => setTimeout(done, 5, false)) };
const shell = new adk.FunctionTool({
  name: "shell",
  description: "Runs a command.",
  parameters: { type: "OBJECT", properties: { command: { type: "STRING" } }, required: ["command"] },
  execute: async ({ command }) => ({ output: (await run(command)).stdout }),
});
const instruction = "You help a small team to run its services.";
const contextCompactors = [pause, compactor];
const agent = new adk.LlmAgent({ name: "operator", model, instruction, tools: [shell], contextCompactors });
const runner = new adk.InMemoryRunner({ agent, appName: "talk" });
await runner.sessionService.createSession({ appName: "talk", userId: "u", sessionId: "s" });

const answers = [];
for (const line of job.lines) {
  const newMessage = { role: "user", parts: [{ text: line }] };
  let answer = "";
  for await (const event of runner.runAsync({ userId: "u", sessionId: "s", newMessage }))
    if (adk.isFinalResponse(event) && event.author === "operator") answer = adk.stringifyContent(event);
  answers.push(answer);
}
console.log(JSON.stringify(answers));
