// An agent of n8n's SDK: an observer writes notes of what was said, which take its place at the end of the system prompt.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const { Agent, Memory, Tool } = require("@n8n/agents");
const { z } = require("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);
const fetched = globalThis.fetch;
for (const name of ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"]) delete process.env[name]; // it asks them always
globalThis.fetch = (url, ...more) => (`${url}`.startsWith(job.url) ? fetched(url, ...more) : Promise.reject(Error("offline")));

const shell = new Tool("shell")
  .description("Runs a command.")
  .input(z.object({ command: z.string() }))
  .handler(async ({ command }) => ({ output: (await run(command)).stdout }));
const agent = new Agent("operator")
  .model({ id: "openai/gpt-5-mini", url: job.url + "/v1", apiKey: "sk-dummy-n8n" })
  .instructions("You help a small team to run its services.")
  .tool(shell)
  .memory(new Memory().storage("memory").observationalMemory({ observerThresholdTokens: 150 }));

const answers = [];
for (const line of job.lines) {
  const { messages, error } = await agent.generate(line, { persistence: { threadId: "talk", resourceId: "user" } });
  if (error) throw error;
  answers.push(messages.at(-1).content.map((part) => part.text ?? "").join(""));
}
await agent.close();
console.log(JSON.stringify(answers));
process.exit(0);
