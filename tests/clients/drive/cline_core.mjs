// The core of Cline, as its extensions and its CLI use it. By its argument it sums up what does not fit its model's
// window (agentic), or folds all that was said into the message that asks, with notes of what was done (basic).
import { pathToFileURL } from "node:url";

const entry = process.env.CLIENT_FOLDER + "/node_modules/@cline/core/dist/index.js";
const { ClineCore } = await import(pathToFileURL(entry));
const job = JSON.parse(await new Response(process.stdin).text());
const strategy = process.argv[2];
const window = { agentic: 600, basic: 4100 }[strategy];

const core = await ClineCore.create({ clientName: "lantern-check", backendMode: "local" });
const config = {
  providerId: "openai-compatible",
  modelId: "scripted",
  apiKey: "sk-dummy-cline",
  baseUrl: job.url + "/v1",
  knownModels: { scripted: { id: "scripted", name: "scripted", contextWindow: window, maxInputTokens: window } },
  cwd: process.cwd(),
  mode: "act",
  enableTools: true,
  enableSpawnAgent: false,
  enableAgentTeams: false,
  systemPrompt: "You help a small team.",
  compaction: { enabled: true, strategy, preserveRecentTokens: 60 },
};
const toolPolicies = { "*": { autoApprove: true } };
const answers = [];
let sessionId;
for (const prompt of job.lines) {
  if (sessionId) {
    answers.push((await core.send({ sessionId, prompt })).text);
  } else {
    const started = await core.start({ config, prompt, interactive: true, toolPolicies });
    sessionId = started.sessionId;
    answers.push(started.result.text);
  }
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
