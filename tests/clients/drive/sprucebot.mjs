// A bot of Sprucebot, which holds ten messages and leaves out of the older ones those that are long.
import { createRequire } from "node:module";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const { OpenAiAdapter, SprucebotLlmFactory } = require("@sprucelabs/sprucebot-llm");
const job = JSON.parse(await new Response(process.stdin).text());

process.env.OPENAI_PAST_MESSAGE_MAX_CHARS = "150";
const adapter = OpenAiAdapter.Adapter("sk-dummy-sprucebot", { model: "gpt-5-mini", baseUrl: job.url + "/v1" });
const bot = SprucebotLlmFactory.Factory(adapter).Bot({ youAre: "a helper of a small team that runs services" });

const answers = [];
for (const line of job.lines) answers.push(await bot.sendMessage(line));
console.log("\n" + JSON.stringify(answers));
process.exit(0);
