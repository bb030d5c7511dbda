// The language model of LiveKit's agents for Node, whose chat is summed up by itself where a request was large.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(`${process.env.CLIENT_FOLDER}/node_modules/${name}/dist/index.js`));
const { initializeLogger, llm } = await load("@livekit/agents");
const openai = await load("@livekit/agents-plugin-openai");
const { z } = await import(pathToFileURL(require.resolve("zod")));
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

initializeLogger({ pretty: false, level: "silent" });
const model = new openai.LLM({ model: "gpt-4.1-mini", baseURL: job.url + "/v1", apiKey: "sk-dummy-livekit" });
const shell = llm.tool({
  name: "shell",
  description: "Runs a command.",
  parameters: z.object({ command: z.string() }),
  execute: async ({ command }) => (await run(command)).stdout,
});
const toolCtx = new llm.ToolContext([shell]);
let chatCtx = llm.ChatContext.empty();
chatCtx.addMessage({ role: "system", content: "You help a small team to run its services." });

async function answered() {
  const { text, toolCalls, usage } = await model.chat({ chatCtx, toolCtx }).collect();
  if (toolCalls.length === 0) {
    chatCtx.addMessage({ role: "assistant", content: text });
    return [text, usage?.promptTokens ?? 0];
  }
  for (const call of toolCalls) {
    const output = await shell.execute(JSON.parse(call.args), {});
    chatCtx.insert(llm.FunctionCall.create(call));
    chatCtx.insert(llm.FunctionCallOutput.create({ callId: call.callId, name: call.name, output, isError: false }));
  }
  return answered();
}

const answers = [];
for (const line of job.lines) {
  chatCtx.addMessage({ role: "user", content: line });
  const [text, tokens] = await answered();
  answers.push(text);
  if (tokens > 100_000) chatCtx = await chatCtx._summarize(model, { keepLastTurns: 1 });
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
