// An agent of llmist that compacts its history: by the argument, "summarization" or "sliding-window". Each line is said to
// it while it runs. It calls its tools in words, so that the scripted model has none.
import { pathToFileURL } from "node:url";

const job = JSON.parse(await new Response(process.stdin).text());
Object.assign(process.env, { OPENAI_BASE_URL: job.url + "/v1", OPENAI_API_KEY: "sk-dummy-llmist" });
const library = process.env.CLIENT_FOLDER + "/node_modules/llmist/dist/index.js";
const { AgentBuilder, LLMist } = await import(pathToFileURL(library));

const [first, ...others] = job.lines;
const agent = new AgentBuilder(new LLMist())
  .withModel("openai:gpt-5-mini")
  .withSystem("You help a small team to run its services.")
  .withCompaction({ strategy: process.argv[2], triggerThresholdPercent: 0.4, targetPercent: 0.3, preserveRecentTurns: 3 })
  .withMaxIterations(job.lines.length)
  .withTextOnlyHandler("acknowledge")
  .ask(first);
const answers = [];
for await (const event of agent.run()) {
  if (event.type !== "text") continue;
  answers.push(event.content);
  if (others.length) agent.injectUserMessage(others.shift());
}
console.log("\n" + JSON.stringify(answers));
process.exit(0);
