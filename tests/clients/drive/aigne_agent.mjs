// An agent of AIGNE: a session's older entries are summed up, and a message of the system says so behind the prompt.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { AFS } = await load("@aigne/afs");
const { AFSHistory } = await load("@aigne/afs-history");
const { AIAgent, AIGNE, FunctionAgent } = await load("@aigne/core");
const { OpenAIChatModel } = await load("@aigne/openai");
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const shell = FunctionAgent.from({
  name: "shell",
  description: "Runs a command.",
  inputSchema: z.object({ command: z.string() }),
  process: async ({ command }) => ({ output: (await run(command)).stdout }),
});
const agent = AIAgent.from({
  name: "helper",
  instructions: "You help a small team to run its services.",
  inputKey: "message",
  skills: [shell],
  afs: new AFS().mount(new AFSHistory({ storage: { url: "file:history.db" } })),
  session: {
    compact: { maxTokens: 260, keepRecentRatio: 0.6, async: false },
    sessionMemory: { mode: "disabled" },
    userMemory: { mode: "disabled" },
  },
});
const model = new OpenAIChatModel({ model: "gpt-5-mini", apiKey: "sk-dummy-aigne", baseURL: job.url + "/v1" });
const aigne = new AIGNE({ model });

const answers = [];
for (const line of job.lines) {
  const { message } = await aigne.invoke(agent, { message: line }, { userContext: { sessionId: "talk", userId: "user" } });
  answers.push(message);
}
console.log(JSON.stringify(answers));
process.exit(0);
