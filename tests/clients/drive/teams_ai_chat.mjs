// The model client of Teams AI, whose prompt holds the newest messages alone.
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const teams = require("@microsoft/teams-ai");
const job = JSON.parse(await new Response(process.stdin).text());

const model = new teams.OpenAIModel({
  apiKey: "sk-dummy-teams",
  defaultModel: "gpt-4o",
  endpoint: job.url + "/v1",
  useSystemMessages: true,
});
const system = new teams.SystemMessage("You help a small team to run its services.", 200);
const history = new teams.ConversationHistory("conversation.history", 1.0, true);
const template = {
  name: "talk",
  prompt: new teams.Prompt([system, history, new teams.UserMessage("{{$temp.input}}", 1_000)]),
  config: { schema: 1.1, type: "completion", completion: { max_tokens: 500, max_input_tokens: 3_000 } },
};
const client = new teams.LLMClient({ model, template, max_history_messages: 4 });
const kept = new Map();
const memory = {
  deleteValue: (path) => kept.delete(path),
  hasValue: (path) => kept.has(path),
  getValue: (path) => kept.get(path),
  setValue: (path, value) => kept.set(path, value),
};
const functions = new teams.PromptManager({ promptsFolder: "." });

const answers = [];
for (const line of job.lines) {
  memory.setValue("temp.input", line);
  const done = await client.completePrompt({}, memory, functions);
  if (done.status !== "success") throw done.error;
  answers.push(done.message.content);
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
