// A conversation chain of LangChain.js whose memory is a summary, made anew with every turn and written into the prompt.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.CLIENT_FOLDER + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { ConversationChain } = await load("@langchain/classic/chains");
const { ConversationSummaryMemory } = await load("@langchain/classic/memory");
const { ChatOpenAI } = await load("@langchain/openai");
const job = JSON.parse(await new Response(process.stdin).text());

const configuration = { baseURL: job.url + "/v1" };
const llm = new ChatOpenAI({ model: "gpt-5-mini", apiKey: "sk-dummy-langchain-js", configuration });
const chain = new ConversationChain({ llm, memory: new ConversationSummaryMemory({ llm }) });

const answers = [];
for (const line of job.lines) answers.push((await chain.invoke({ input: line })).response);
console.log(JSON.stringify(answers));
