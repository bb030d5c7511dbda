// An agent of Magma, which shows its model the newest messages alone.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { MagmaAgent } = await load("@pompeii-labs/magma");
const { default: OpenAI } = await load("openai");
const job = JSON.parse(await new Response(process.stdin).text());

class Operator extends MagmaAgent {
  getSystemPrompts() {
    return ["You help a small team to run its services."];
  }
}
const client = new OpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-magma" });
const agent = new Operator({ provider: "openai", model: "gpt-4.1-mini", messageContext: 5, client });

const answers = [];
for (const content of job.lines) {
  agent.addMessage({ role: "user", content });
  answers.push((await agent.main()).content);
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
