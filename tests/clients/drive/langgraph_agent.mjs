// A graph of LangGraph.js that sums up what is older and removes it from its state, as its tutorial does it by hand.
import { exec } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { HumanMessage, RemoveMessage, SystemMessage } = await load("@langchain/core/messages");
const { tool } = await load("@langchain/core/tools");
const { Annotation, END, MemorySaver, MessagesAnnotation, START, StateGraph } = await load("@langchain/langgraph");
const { ToolNode } = await load("@langchain/langgraph/prebuilt");
const { ChatOpenAI } = await load("@langchain/openai");
const { z } = await load("zod");
const job = JSON.parse(await new Response(process.stdin).text());
const run = promisify(exec);

const configuration = { baseURL: job.url + "/v1" };
const model = new ChatOpenAI({ model: "gpt-5-mini", apiKey: "sk-dummy-langgraph-js", configuration });
const shell = tool(async ({ command }) => (await run(command)).stdout, {
  name: "shell",
  description: "Runs a command.",
  schema: z.object({ command: z.string() }),
});
const State = Annotation.Root({ ...MessagesAnnotation.spec, summary: Annotation() });

async function speak({ messages, summary }) {
  const told = summary ? [new SystemMessage(`Summary of conversation earlier: ${summary}`)] : [];
  return { messages: [await model.bindTools([shell]).invoke([...told, ...messages])] };
}

async function sumUp({ messages, summary }) {
  const wish = summary
    ? `This is summary of the conversation to date: ${summary}\n\nExtend the summary by taking into account the new messages above:`
    : "Create a summary of the conversation above:";
  const { text } = await model.invoke([...messages, new HumanMessage(wish)]);
  return { summary: text, messages: messages.slice(0, -2).map(({ id }) => new RemoveMessage({ id })) };
}

function next({ messages }) {
  if (messages.at(-1).tool_calls.length) return "tools";
  return messages.length > 6 ? "sumUp" : END;
}

const graph = new StateGraph(State)
  .addNode("speak", speak)
  .addNode("tools", new ToolNode([shell]))
  .addNode("sumUp", sumUp)
  .addEdge(START, "speak")
  .addEdge("tools", "speak")
  .addConditionalEdges("speak", next, ["tools", "sumUp", END])
  .addEdge("sumUp", END)
  .compile({ checkpointer: new MemorySaver() });

const answers = [];
for (const line of job.lines) {
  const said = { messages: [new HumanMessage(line)] };
  const { messages } = await graph.invoke(said, { configurable: { thread_id: "talk" } });
  answers.push(messages.at(-1).text);
}
console.log(JSON.stringify(answers));
