// An app of Vercel's eve in a folder of its own, served by `eve dev` and spoken to through its client; it compacts when the
// reported size fills its window.
import { spawn } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { pathToFileURL } from "node:url";

const job = JSON.parse(await new Response(process.stdin).text());
const modules = process.env.CLIENT_FOLDER + "/node_modules";
const app = process.env.HOME + "/app";
const quoted = (text) => JSON.stringify(text);

mkdirSync(app + "/agent/tools", { recursive: true });
symlinkSync(modules, app + "/node_modules");
const needed = Object.fromEntries(["eve", "ai", "zod", "@ai-sdk/openai-compatible"].map((name) => [name, "*"]));
writeFileSync(app + "/package.json", JSON.stringify({ name: "app", private: true, type: "module", dependencies: needed }));
writeFileSync(app + "/agent/instructions.md", "You help a small team.");
writeFileSync(
  app + "/agent/agent.ts",
  `import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { defineAgent } from "eve";
const address = { baseURL: ${quoted(job.url + "/v1")}, apiKey: "sk-dummy-eve" };
const scripted = createOpenAICompatible({ name: "scripted", includeUsage: true, ...address });
export default defineAgent({ model: scripted("gpt-5-mini"), modelContextWindowTokens: 100000 });
`,
);
writeFileSync(
  app + "/agent/tools/shell.ts",
  `import { exec } from "node:child_process";
import { promisify } from "node:util";
import { defineTool } from "eve/tools";
import { z } from "zod";
const run = promisify(exec);
export default defineTool({
  description: "Runs a command.",
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => (await run(command, { cwd: ${quoted(process.cwd())} })).stdout,
});
`,
);

const port = await new Promise((go) => {
  const probe = createServer().listen(0, "127.0.0.1", () => {
    const free = probe.address().port;
    probe.close(() => go(free));
  });
});
const served = ["dev", "--no-ui", "--no-default-extensions", "--host", "127.0.0.1", "--port", String(port)];
const env = { ...process.env, EVE_TELEMETRY_DEBUG: "1" };
const command = [modules + "/eve/bin/eve.js", ...served];
const server = spawn(modules + "/.bin/node", command, { cwd: app, env, stdio: ["ignore", 2, 2] });

const { Client } = await import(pathToFileURL(modules + "/eve/dist/src/client/index.js"));
const client = new Client({ host: `http://127.0.0.1:${port}` });
for (let ready = false; !ready && server.exitCode === null; ) {
  ready = await client.health().then(() => true, () => false);
  if (!ready) await new Promise((go) => setTimeout(go, 300));
}
const answers = [];
let session;
for (const message of job.lines) {
  const sent = session ? { session, response: await session.send(message) } : await client.sessions.create({ message });
  session = sent.session;
  answers.push((await sent.response.result()).message);
}
server.kill("SIGKILL");
console.log("\n" + JSON.stringify(answers));
process.exit(0);
