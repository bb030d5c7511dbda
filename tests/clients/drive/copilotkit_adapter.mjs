// CopilotKit's adapter for OpenAI or, by its argument, for Anthropic, as its runtime calls it: of all messages, the newest
// that fit its tokens are sent.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const runtime = require.resolve("@copilotkit/runtime");
const messageTypes = path.join(path.dirname(runtime), "graphql/types/converted/index.cjs"); // it does not export them
const { AnthropicAdapter, OpenAIAdapter } = require(runtime);
const { ActionExecutionMessage, ResultMessage, TextMessage } = require(messageTypes);
const load = async (name) => (await import(pathToFileURL(require.resolve(name)))).default;
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const makers = {
  async openai() {
    const openai = new (await load("openai"))({ baseURL: job.url + "/v1", apiKey: "sk-dummy-copilotkit" });
    return new OpenAIAdapter({ openai, model: "gpt-5-mini", maxInputTokens: 300 });
  },
  async anthropic() {
    const anthropic = new (await load("@anthropic-ai/sdk"))({ baseURL: job.url, apiKey: "dummy-copilotkit" });
    return new AnthropicAdapter({ anthropic, model: "claude-sonnet-4-5", maxInputTokens: 360 });
  },
};
const adapter = await makers[process.argv[2]]();
const parameters = { type: "object", properties: { command: { type: "string" } }, required: ["command"] };
const shell = { name: "shell", description: "Runs a command.", jsonSchema: JSON.stringify(parameters) };

/** What the model says to `messages`: a text, or the call of a tool. */
async function ask(messages) {
  let said, text, call;
  const sink = {
    sendTextMessageStart: () => (text = ""),
    sendTextMessageContent: ({ content }) => (text += content),
    sendTextMessageEnd: () => (said = new TextMessage({ role: "assistant", content: text })),
    sendActionExecutionStart: (begun) => ([call, text] = [begun, ""]),
    sendActionExecutionArgs: ({ args }) => (text += args),
    sendActionExecutionEnd: () =>
      (said = new ActionExecutionMessage({
        id: call.actionExecutionId,
        name: call.actionName,
        arguments: JSON.parse(text),
      })),
    complete: () => {},
  };
  let ended;
  const eventSource = { stream: (write) => (ended = write(sink)) };
  await adapter.process({ threadId: "talk", messages, actions: [shell], eventSource, forwardedParameters: {} });
  await ended;
  return said;
}

const messages = [new TextMessage({ role: "system", content: "You help a small team to run its services. Be brief." })];
const answers = [];
for (const line of job.lines) {
  messages.push(new TextMessage({ role: "user", content: line }));
  let said = await ask(messages);
  while (said.isActionExecutionMessage()) {
    const { stdout } = await run(said.arguments.command);
    messages.push(said, new ResultMessage({ actionExecutionId: said.id, actionName: said.name, result: stdout }));
    said = await ask(messages);
  }
  messages.push(said);
  answers.push(said.content);
}
console.log(JSON.stringify(answers));
