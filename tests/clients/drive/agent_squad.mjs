// The only agent of an Agent Squad, which shows its model the newest pairs of messages alone.
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const { AgentSquad, Classifier, OpenAIAgent } = require("agent-squad");
const { default: OpenAI } = require("openai");
const job = JSON.parse(await new Response(process.stdin).text());

const client = new OpenAI({ baseURL: job.url + "/v1", apiKey: "sk-dummy-squad" });
const agent = new OpenAIAgent({ name: "Operator", description: "Helps a small team.", client, model: "gpt-5-mini" });

class Only extends Classifier {
  async processRequest() {
    return { selectedAgent: agent, confidence: 1 };
  }
}
const squad = new AgentSquad({ classifier: new Only(), config: { MAX_MESSAGE_PAIRS_PER_AGENT: 2 } });
squad.addAgent(agent);

const answers = [];
for (const line of job.lines) answers.push((await squad.routeRequest(line, "ann", "talk")).output);
console.log("\n" + JSON.stringify(answers));
process.exit(0);
