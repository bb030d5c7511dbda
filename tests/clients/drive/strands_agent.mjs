// A Strands agent in JavaScript that has its older messages summarised, or lets go of them.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const sdk = process.env.CLIENT_FOLDER + "/node_modules/@strands-agents/sdk/dist/src/";
const { Agent, SlidingWindowConversationManager, SummarizingConversationManager, tool } = await import(
  pathToFileURL(sdk + "index.node.js")
);
const { OpenAIModel } = await import(pathToFileURL(sdk + "models/openai/index.js"));
const { z } = await import(pathToFileURL(require.resolve("zod")));
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const clientConfig = { baseURL: job.url + "/v1" };
const model = new OpenAIModel({
  api: "chat", modelId: "gpt-5-mini", apiKey: "sk-dummy-strands-js", contextWindowLimit: 100000, clientConfig,
});
const shell = tool({
  name: "shell",
  description: "Runs a command.",
  inputSchema: z.object({ command: z.string() }),
  callback: async ({ command }) => (await run(command)).stdout,
});
const conversationManager =
  process.argv[2] === "window"
    ? new SlidingWindowConversationManager({ windowSize: 6 })
    : new SummarizingConversationManager({
        summaryRatio: 0.7, preserveRecentMessages: 2, proactiveCompression: { compressionThreshold: 0.7 },
      });
const agent = new Agent({ model, tools: [shell], systemPrompt: "You help a small team.", printer: false, conversationManager });

const answers = [];
for (const line of job.lines) {
  const { lastMessage } = await agent.invoke(line);
  answers.push(lastMessage.content.map((block) => block.text ?? "").join(""));
}
console.log(JSON.stringify(answers));
