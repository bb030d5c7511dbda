// A chat with NeuroLink, whose memory leaves out what tools gave, and sums up all but the newest messages when it is full.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const job = JSON.parse(await new Response(process.stdin).text());
process.env.OPENAI_COMPATIBLE_BASE_URL = job.url + "/v1";
process.env.OPENAI_COMPATIBLE_API_KEY = "sk-dummy-neurolink";
process.env.OPENAI_COMPATIBLE_MODEL = "gpt-5-mini";
const main = process.env.CLIENT_FOLDER + "/node_modules/@juspay/neurolink/dist/index.js";
const { NeuroLink } = await import(pathToFileURL(main));
const { z } = await import(pathToFileURL(require.resolve("zod")));
const run = promisify(exec);

const model = { provider: "openai-compatible", model: "gpt-5-mini" };
const input = z.object({ command: z.string() });
const shell = {
  description: "Runs a command.",
  inputSchema: input,
  parameters: input,
  execute: async ({ command }) => (await run(command)).stdout,
};
const neurolink = new NeuroLink({
  conversationMemory: {
    enabled: true,
    tokenThreshold: 150,
    summarizationProvider: model.provider,
    summarizationModel: model.model,
  },
});
const answers = [];
for (const text of job.lines) {
  const said = { input: { text }, systemPrompt: "You help a small team.", tools: { shell }, toolFilter: ["shell"] };
  const answer = await neurolink.generate({ ...model, ...said, context: { sessionId: "talk", userId: "u" } });
  answers.push(answer.content);
  await new Promise((go) => setTimeout(go, 600)); // it sums up beside the conversation
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
